// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dialects

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/test/await"
)

// variables returns the variables of restarts, as CONTAINER/NAME, with their values.
func variables(template *corev1.PodTemplateSpec) map[string]string {
	found := map[string]string{}
	for _, c := range append(template.Spec.InitContainers, template.Spec.Containers...) {
		for _, v := range c.Env {
			if strings.HasPrefix(v.Name, "STAKATER_") {
				found[c.Name+"/"+v.Name] = v.Value
			}
		}
	}
	return found
}

// With the strategy env-var, a restart sets one variable, in the container that reads the source, and the next one changes it.
// The rest of the template stays as it is.
func TestEnvVar(t *testing.T) {
	t.Parallel()
	annotations := pairs(auto, "true", policy.StrategyAnnotation, "env-var")
	template := podTemplate("web", config)
	template.Spec.InitContainers = []corev1.Container{{Name: "init", Image: "app"}}
	sidecar := corev1.Container{Name: "sidecar", Image: "app", Env: []corev1.EnvVar{{Name: "A", Value: "a"}, {Name: "B", Value: "$(A)"}}}
	reads(&sidecar, db)
	template.Spec.Containers = append(template.Spec.Containers, sidecar)
	meta, selector := metav1.ObjectMeta{Name: "web", Annotations: annotations}, &metav1.LabelSelector{MatchLabels: template.Labels}
	apps := client.AppsV1()
	for kind, of := range map[string]struct {
		create func(ctx context.Context, namespace string) error
		get    func(ctx context.Context, namespace string) (*corev1.PodTemplateSpec, error)
	}{
		"Deployment": {
			func(ctx context.Context, namespace string) error {
				_, err := apps.Deployments(namespace).Create(ctx, deployment("web", annotations, template), metav1.CreateOptions{})
				return err
			},
			func(ctx context.Context, namespace string) (*corev1.PodTemplateSpec, error) {
				o, err := apps.Deployments(namespace).Get(ctx, "web", metav1.GetOptions{})
				return &o.Spec.Template, err
			},
		},
		"StatefulSet": {
			func(ctx context.Context, namespace string) error {
				o := &appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Selector: selector, Template: template}}
				_, err := apps.StatefulSets(namespace).Create(ctx, o, metav1.CreateOptions{})
				return err
			},
			func(ctx context.Context, namespace string) (*corev1.PodTemplateSpec, error) {
				o, err := apps.StatefulSets(namespace).Get(ctx, "web", metav1.GetOptions{})
				return &o.Spec.Template, err
			},
		},
		"DaemonSet": {
			func(ctx context.Context, namespace string) error {
				o := &appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{Selector: selector, Template: template}}
				_, err := apps.DaemonSets(namespace).Create(ctx, o, metav1.CreateOptions{})
				return err
			},
			func(ctx context.Context, namespace string) (*corev1.PodTemplateSpec, error) {
				o, err := apps.DaemonSets(namespace).Get(ctx, "web", metav1.GetOptions{})
				return &o.Spec.Template, err
			},
		},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s, view := newShop(t), strings.ToLower(kind)+".web"
			s.source(config)
			s.source(db)
			if err := of.create(t.Context(), s.namespace); err != nil {
				t.Fatal(err)
			}
			s.view(view, inSync, func(o *v1alpha1.ConfigDependency) error {
				if o.Spec.Reload.Strategy != v1alpha1.StrategyEnvVar {
					return fmt.Errorf("strategy = %s", o.Spec.Reload.Strategy)
				}
				return nil
			})
			before := map[string]string{}
			// until waits until exactly one variable is set, to another value than before.
			until := func(want string) *corev1.PodTemplateSpec {
				t.Helper()
				var now *corev1.PodTemplateSpec
				await.Until(t, want+" is set", func(ctx context.Context) (err error) {
					if now, err = of.get(ctx, s.namespace); err != nil {
						return err
					}
					found := variables(now)
					if len(found) != 1 || found[want] == "" || found[want] == before[want] {
						return fmt.Errorf("variables = %v, before %v", found, before)
					}
					return nil
				})
				before = variables(now)
				return now
			}
			s.write(db, "new")
			until("sidecar/STAKATER_DB_SECRET")
			s.write(db, "newer") // right after the restart
			now := until("sidecar/STAKATER_DB_SECRET")
			if from := now.Annotations[lastReloadedFrom]; !strings.Contains(from, `"containerRefs":["sidecar"]`) {
				t.Errorf("%s = %s, want the container", lastReloadedFrom, from)
			}
			s.write(config, "new")
			now = until("app/STAKATER_APP_CONFIG_CONFIGMAP")
			s.view(view, inSync)
			var order []string
			for _, c := range now.Spec.Containers {
				order = append(order, c.Name)
			}
			if diff := cmp.Diff([]string{"app", "sidecar"}, order); diff != "" {
				t.Errorf("containers (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(sidecar.Env, now.Spec.Containers[1].Env); diff != "" {
				t.Errorf("variables of the sidecar (-want +got):\n%s", diff)
			}
		})
	}
}

// An owner applies its manifest again, without the variables and annotations: the webhook restores both, and no pod is replaced.
// If Reloader sets a variable, that is a restart, which is recorded: there is no other.
func TestEnvVar_OutlastsTheOwner(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.source(db)
	manifest := deployment("web", pairs(auto, "true", policy.StrategyAnnotation, "env-var"), podTemplate("web", db))
	s.create(manifest.DeepCopy())
	s.view("deployment.web", inSync)
	s.write(db, "new")
	before := s.until("web", "is restarted", func(d *appsv1.Deployment) error {
		if len(variables(&d.Spec.Template)) == 0 || d.Status.ObservedGeneration < d.Generation {
			return errors.New("not yet")
		}
		return nil
	})
	s.view("deployment.web", inSync)
	after := s.edit("web", func(d *appsv1.Deployment) {
		d.Annotations, d.Spec.Template = manifest.Annotations, manifest.Spec.Template
	})
	if diff := cmp.Diff(before.Spec.Template, after.Spec.Template); diff != "" {
		t.Errorf("template after a rewrite (-before +after):\n%s", diff)
	}

	patch := `{"spec": {"template": {"spec": {"containers": [{"name": "app", "env": [{"name": "STAKATER_DB_SECRET", "value": "mine"}]}]}}}}`
	made, err := client.AppsV1().Deployments(s.namespace).Patch(t.Context(), "web", "application/strategic-merge-patch+json", []byte(patch), metav1.PatchOptions{FieldManager: "Reloader"})
	if err != nil {
		t.Fatal(err)
	}
	if got := variables(&made.Spec.Template)["app/STAKATER_DB_SECRET"]; got != "mine" {
		t.Errorf("variable = %q after Reloader has set it", got)
	}
	version := s.write(db, "newer")
	s.until("web", "is restarted again", func(d *appsv1.Deployment) error {
		if got := variables(&d.Spec.Template)["app/STAKATER_DB_SECRET"]; got == "mine" || d.Status.ObservedGeneration < d.Generation {
			return fmt.Errorf("variable = %q", got)
		}
		return nil
	})
	s.view("deployment.web", inSync, at(db, version))
	if n := s.rollouts("web"); n > 4 { // at first, and for each of three restarts
		t.Errorf("%d templates", n)
	}
}
