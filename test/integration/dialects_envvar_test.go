// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

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
	"github.com/configdep/configdep/pkg/record"
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
func TestDialects_EnvVar(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"Deployment", "StatefulSet", "DaemonSet"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s, view := newShop(t), strings.ToLower(kind)+".web"
			s.write(config, "key", "old")
			s.write(db, "key", "old")
			sidecar := corev1.Container{Name: "sidecar", Image: "app", Env: []corev1.EnvVar{{Name: "A", Value: "a"}, {Name: "B", Value: "$(A)"}}}
			createWorkload(t, s.namespace, kind, pairs(autoReload, "true", policy.StrategyAnnotation, "env-var"), optional(config), func(p *corev1.PodSpec) {
				p.InitContainers = []corev1.Container{{Name: "init", Image: "app"}}
				of := corev1.PodSpec{Containers: []corev1.Container{sidecar}}
				optional(db)(&of)
				p.Containers = append(p.Containers, of.Containers...)
			})
			s.view(view, applied, func(o *v1alpha1.ConfigDependency) error {
				if o.Spec.Reload.Strategy != v1alpha1.StrategyEnvVar {
					return fmt.Errorf("strategy = %s", o.Spec.Reload.Strategy)
				}
				return nil
			})
			before := map[string]string{}
			// until waits until exactly one variable is set, to another value than before.
			until := func(want string) (now corev1.PodTemplateSpec) {
				t.Helper()
				await.Until(t, want+" is set", func(context.Context) error {
					now = getRollout(t, s.namespace, kind, "web").template
					if found := variables(&now); len(found) != 1 || found[want] == "" || found[want] == before[want] {
						return fmt.Errorf("variables = %v, before %v", found, before)
					}
					return nil
				})
				before = variables(&now)
				return now
			}
			s.write(db, "key", "new")
			until("sidecar/STAKATER_DB_SECRET")
			s.view(view, applied)
			awaitAge(t, s.namespace, "web") // pods that start after the change have read it
			s.write(db, "key", "newer")
			now := until("sidecar/STAKATER_DB_SECRET")
			if from := now.Annotations[lastReloadedFrom]; !strings.Contains(from, `"containerRefs":["sidecar"]`) {
				t.Errorf("%s = %s, want the container", lastReloadedFrom, from)
			}
			s.view(view, applied)
			awaitAge(t, s.namespace, "web")
			s.write(config, "key", "new")
			now = until("app/STAKATER_APP_CONFIG_CONFIGMAP")
			s.view(view, applied)
			if c := now.Spec.Containers; len(c) != 2 || c[0].Name != "app" || !cmp.Equal(sidecar.Env, c[1].Env) {
				t.Errorf("containers = %+v", c)
			}
		})
	}
}

// An owner applies its manifest again, without the variables and annotations. The record is restored, but not the variables: that is a rollout, and
// configdep makes no other. If Reloader sets a variable, that is a restart, which is recorded: there is no other either.
func TestDialects_EnvVarOutlastsTheOwner(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.write(db, "key", "old")
	manifest := reading("web", pairs(autoReload, "true", policy.StrategyAnnotation, "env-var"), nil, db)
	s.create(manifest.DeepCopy())
	s.view("deployment.web", applied)
	s.write(db, "key", "new")
	s.until("web", "is restarted", func(d *appsv1.Deployment) error {
		if len(variables(&d.Spec.Template)) == 0 || d.Status.ObservedGeneration < d.Generation {
			return errors.New("not yet")
		}
		return nil
	})
	before := s.view("deployment.web", applied)
	after := s.edit("web", func(d *appsv1.Deployment) {
		d.Annotations, d.Spec.Template = manifest.Annotations, manifest.Spec.Template
	})
	older, err := cluster.Older("1.36") // and so no policy restores annotations
	if err != nil {
		t.Fatal(err)
	}
	if after.Annotations[record.AppliedSourcesAnnotation] == "" && !older || len(variables(&after.Spec.Template)) > 0 {
		t.Errorf("after a rewrite, the annotations are %v and the variables %v", after.Annotations, variables(&after.Spec.Template))
	}
	if diff := cmp.Diff(before.Status.LastReload, s.view("deployment.web", applied).Status.LastReload); diff != "" {
		t.Errorf("last reload after a rewrite (-before +after):\n%s", diff)
	}

	patch := `{"spec": {"template": {"spec": {"containers": [{"name": "app", "env": [{"name": "STAKATER_DB_SECRET", "value": "mine"}]}]}}}}`
	made, err := kube.AppsV1().Deployments(s.namespace).Patch(t.Context(), "web", "application/strategic-merge-patch+json", []byte(patch), metav1.PatchOptions{FieldManager: "Reloader"})
	if err != nil {
		t.Fatal(err)
	}
	if got := variables(&made.Spec.Template)["app/STAKATER_DB_SECRET"]; got != "mine" {
		t.Errorf("variable = %q after Reloader has set it", got)
	}
	s.view("deployment.web", applied)
	awaitAge(t, s.namespace, "web") // pods that start after the change have read it
	written := s.write(db, "key", "newer")
	s.until("web", "is restarted again", func(d *appsv1.Deployment) error {
		if got := variables(&d.Spec.Template)["app/STAKATER_DB_SECRET"]; got == "mine" || d.Status.ObservedGeneration < d.Generation {
			return fmt.Errorf("variable = %q", got)
		}
		return nil
	})
	s.view("deployment.web", applied, at(written))
	if n := s.templates("web"); n > 4 { // at first, and for each of three restarts
		t.Errorf("%d templates", n)
	}
}

// A variable that is defined twice in a container, which is how users override one of a chart, is no obstacle, whatever the strategy: neither for
// the API server nor for our own policies. All other variables keep their order and values.
func TestDialects_VariablesThatAreDefinedTwice(t *testing.T) {
	t.Parallel()
	plain := func(name, value string) corev1.EnvVar { return corev1.EnvVar{Name: name, Value: value} }
	env := []corev1.EnvVar{plain("A", "a"), plain("B", "$(A)"), plain("STAKATER_WEB_SECRET", "of Reloader"), plain("A", "b"), plain("C", "$(A)"), plain("B", "b")}
	others := []corev1.EnvVar{env[0], env[1], env[3], env[4], env[5]}
	for _, strategy := range []string{"annotation", "env-var"} {
		for _, kind := range []string{"Deployment", "StatefulSet", "DaemonSet"} {
			t.Run(strategy+"/"+kind, func(t *testing.T) {
				t.Parallel()
				s, view := newShop(t), strings.ToLower(kind)+".web"
				s.write(db, "key", "old")
				createWorkload(t, s.namespace, kind, pairs(autoReload, "true", policy.StrategyAnnotation, strategy), optional(db), func(p *corev1.PodSpec) {
					p.Containers[0].Env = env
				})
				s.view(view, applied)
				awaitAge(t, s.namespace, "web")
				before := getRollout(t, s.namespace, kind, "web").template.Annotations[record.ConfigHashAnnotation]
				written := s.write(db, "key", "new")
				s.view(view, applied, at(written))
				now := getRollout(t, s.namespace, kind, "web").template
				if hash := now.Annotations[record.ConfigHashAnnotation]; hash == before {
					t.Errorf("hash = %q as before", hash)
				}
				got := now.Spec.Containers[0].Env
				if strategy == "env-var" {
					last := got[len(got)-1]
					if got = got[:len(got)-1]; last.Name != "STAKATER_DB_SECRET" || last.Value == "" {
						t.Errorf("last variable = %v", last)
					}
				}
				if diff := cmp.Diff(others, got); diff != "" {
					t.Errorf("variables (-want +got):\n%s", diff)
				}
			})
		}
	}
}
