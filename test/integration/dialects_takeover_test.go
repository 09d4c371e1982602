// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/record"
	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/install"
)

// Workloads come from each tool, with what it has left on the pod template. When the server starts, it restarts none of them. The
// next change of content restarts those that have pods, and removes what was left.
func TestDialects_Takeover(t *testing.T) {
	t.Parallel()
	const each = 16 // workloads from each tool
	hasPod := func(i int) bool { return i%8 == 0 }
	const variable = "STAKATER_APP_CONFIG_CONFIGMAP"
	left := `{"type":"CONFIGMAP","name":"app-config","namespace":"shop","hash":"da39a3ee5e6b4b0d3255bfef95601890afd80709","containerRefs":["app"],"observedAt":1700000000}`
	tools := map[string]struct {
		annotations map[string]string
		leave       func(*corev1.PodTemplateSpec)
		gone        func(*corev1.PodTemplateSpec) bool // whether what was left has been removed or replaced
	}{
		"reloader-variable": {
			pairs(autoReload, "true"),
			func(p *corev1.PodTemplateSpec) {
				p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", Value: "a"}, {Name: variable, Value: "da39a3ee5e6b4b0d3255bfef95601890afd80709"}}
			},
			func(p *corev1.PodTemplateSpec) bool {
				return cmp.Equal(p.Spec.Containers[0].Env, []corev1.EnvVar{{Name: "A", Value: "a"}})
			},
		},
		"reloader-annotation": {
			pairs(configMapReload, "app-config"),
			func(p *corev1.PodTemplateSpec) { p.Annotations = pairs(lastReloadedFrom, left) },
			func(p *corev1.PodTemplateSpec) bool {
				return p.Annotations[lastReloadedFrom] != left && p.Annotations[lastReloadedFrom] != ""
			},
		},
		"pod-reloader": {
			pairs("pod-reloader.cs.sap.com/configmaps", "app-config"),
			func(p *corev1.PodTemplateSpec) { p.Annotations = pairs("pod-reloader.cs.sap.com/config-hash", "x") },
			func(p *corev1.PodTemplateSpec) bool {
				return p.Annotations["pod-reloader.cs.sap.com/config-hash"] == ""
			},
		},
		"wave": {
			pairs("wave.pusher.com/update-on-config-change", "true"),
			func(p *corev1.PodTemplateSpec) { p.Annotations = pairs("wave.pusher.com/config-hash", "x") },
			func(p *corev1.PodTemplateSpec) bool { return p.Annotations["wave.pusher.com/config-hash"] == "" },
		},
	}
	s := newOwnShop(t)
	s.write(config, "key", "old")
	for tool, of := range tools {
		for i := range each {
			name := fmt.Sprintf("%s-%d", tool, i)
			d := reading(name, of.annotations, nil, config)
			of.leave(&d.Spec.Template)
			if !hasPod(i) {
				d.Spec.Replicas = new(int32)
			}
			s.create(d)
		}
	}
	all := func(ctx context.Context) (map[string]*appsv1.Deployment, error) {
		list, err := kube.AppsV1().Deployments(s.namespace).List(ctx, metav1.ListOptions{})
		found := map[string]*appsv1.Deployment{}
		for i := range list.Items {
			found[list.Items[i].Name] = &list.Items[i]
		}
		return found, err
	}
	var before map[string]*appsv1.Deployment
	await.Until(t, "all pods run", func(ctx context.Context) (err error) {
		if before, err = all(ctx); err != nil {
			return err
		}
		for name, d := range before {
			if d.Status.ObservedGeneration < d.Generation || d.Status.AvailableReplicas != *d.Spec.Replicas {
				return fmt.Errorf("status of %s = %+v", name, d.Status)
			}
		}
		return nil
	})

	s.serve(install.ReplicaOptions{})
	// known waits until all workloads are known to run with the content as it was written.
	known := func(written metav1.Object) {
		t.Helper()
		await.Until(t, "all workloads are in sync", func(ctx context.Context) error {
			views, err := s.api().List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			if n := len(views.Items); n < each*len(tools) {
				return fmt.Errorf("%d workloads are shown", n)
			}
			for i := range views.Items {
				o := &views.Items[i]
				if o.Spec.WorkloadRef.Kind != "Deployment" {
					continue
				}
				err := applied(o)
				if written != nil {
					err = errors.Join(err, at(written)(o))
				}
				if err != nil {
					return fmt.Errorf("%s: %w", o.Name, err)
				}
			}
			return nil
		})
	}
	known(nil)
	after, err := all(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name, d := range before {
		if diff := cmp.Diff(d.Spec, after[name].Spec); diff != "" {
			t.Errorf("%s is changed when the server starts (-before +after):\n%s", name, diff)
		}
	}

	known(s.write(config, "key", "new"))
	if n, want := s.templates(""), each*len(tools)*9/8; n != want { // one for each template
		t.Errorf("got %d ReplicaSets, want %d", n, want)
	}
	if after, err = all(t.Context()); err != nil {
		t.Fatal(err)
	}
	for tool, of := range tools {
		for i := range each {
			name := fmt.Sprintf("%s-%d", tool, i)
			template := &after[name].Spec.Template
			if !hasPod(i) { // without pods, so there is nothing to restart
				if diff := cmp.Diff(before[name].Spec, after[name].Spec); diff != "" {
					t.Errorf("%s is changed, although it has no pods (-before +after):\n%s", name, diff)
				}
				continue
			}
			if template.Annotations[record.ConfigHashAnnotation] == "" || !of.gone(template) {
				t.Errorf("%s after a change: annotations of the template = %v, variables = %v", name, template.Annotations, template.Spec.Containers[0].Env)
			}
		}
	}
}
