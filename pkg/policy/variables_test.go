// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/ingest/ingesttest"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/workload/workloadtest"
)

func plain(name, value string) corev1.EnvVar { return corev1.EnvVar{Name: name, Value: value} }

func fromSecret(name string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{Key: "k"}}}
}

// The environment of the containers after a restart: variables of restarts are replaced, and nothing else changes, neither the
// order of the containers nor variables of users.
func TestRestartPatch_Variables(t *testing.T) {
	db := policy.Changed{Kind: dependency.Secret, Name: "db", Digest: "new", Containers: []string{"app"}}
	ofSidecar := policy.Changed{Kind: dependency.ConfigMap, Name: "log.level", Digest: "new", Containers: []string{"sidecar"}}
	type containers map[string][]corev1.EnvVar
	for name, tt := range map[string]struct {
		before, after containers
		strategy      policy.Strategy
		changed       []policy.Changed
	}{
		"a variable in the container that reads the source": {
			containers{"app": nil, "sidecar": {plain("A", "a")}},
			containers{"app": nil, "sidecar": {plain("STAKATER_LOG_LEVEL_CONFIGMAP", "new"), plain("A", "a")}},
			policy.EnvVar, []policy.Changed{ofSidecar},
		},
		"a variable of an earlier restart": {
			containers{"app": {plain("A", "a"), plain("STAKATER_DB_SECRET", "old"), plain("B", "b")}, "sidecar": nil},
			containers{"app": {plain("A", "a"), plain("STAKATER_DB_SECRET", "new"), plain("B", "b")}, "sidecar": nil},
			policy.EnvVar, []policy.Changed{db},
		},
		"two containers, the second one first": {
			containers{"app": nil, "sidecar": nil},
			containers{"app": {plain("STAKATER_DB_SECRET", "new")}, "sidecar": {plain("STAKATER_LOG_LEVEL_CONFIGMAP", "new")}},
			policy.EnvVar, []policy.Changed{ofSidecar, db},
		},
		"variables of other sources, one of them in another container": {
			containers{"app": {plain("STAKATER_WEB_SECRET", "old")}, "sidecar": {plain("STAKATER_WEB_SECRETPROVIDERCLASS", "old"), plain("A", "a")}},
			containers{"app": {plain("STAKATER_DB_SECRET", "new")}, "sidecar": {plain("A", "a")}},
			policy.EnvVar, []policy.Changed{db},
		},
		"variables of users": {
			containers{"app": {plain("STAKATER_ACCOUNT", "mine"), plain("STAKATER__SECRET", "mine"), fromSecret("STAKATER_WEB_SECRET"), plain("STAKATER_OLD_SECRET", "old")}, "sidecar": nil},
			containers{"app": {plain("STAKATER_ACCOUNT", "mine"), plain("STAKATER__SECRET", "mine"), fromSecret("STAKATER_WEB_SECRET")}, "sidecar": nil},
			policy.Annotate, []policy.Changed{db},
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := ingesttest.Deployment("web", corev1.PodSpec{})
			for _, c := range []string{"app", "sidecar"} {
				d.Spec.Template.Spec.Containers = append(d.Spec.Template.Spec.Containers, corev1.Container{Name: c, Image: c, Env: tt.before[c]})
			}
			p := policy.Policy{Mode: policy.Auto, Strategy: tt.strategy}
			patch, err := p.RestartPatch(workloadtest.Read(d), &policy.Restart{
				Present: policy.Record{Hash: "v1.k.h"}, Last: policy.NewAutomaticReload(nil, epoch, 0, "Secret/db"), Changed: tt.changed,
			})
			if err != nil {
				t.Fatal(err)
			}
			ingesttest.Patch(t, d, patch)
			var order []string
			after := containers{}
			for _, c := range d.Spec.Template.Spec.Containers {
				order, after[c.Name] = append(order, c.Name), c.Env
				if c.Image != c.Name {
					t.Errorf("image of %s = %q", c.Name, c.Image)
				}
			}
			if diff := cmp.Diff([]string{"app", "sidecar"}, order); diff != "" {
				t.Errorf("order of the containers (-before +after):\n%s", diff)
			}
			for name, want := range tt.after {
				if diff := cmp.Diff(want, after[name]); diff != "" && len(want)+len(after[name]) > 0 {
					t.Errorf("variables of %s (-want +got):\n%s", name, diff)
				}
			}
		})
	}
}
