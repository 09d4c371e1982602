// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
)

// TestDecide_RollbackToATemplateThatCarriesTheHash: the rollback is in the middle of a rollout. A container
// of the old pods, which stay, may have been restarted in place while content differed from the hash.
func TestDecide_RollbackToATemplateThatCarriesTheHash(t *testing.T) {
	for _, first := range []string{"content", "template"} {
		t.Run(first+" goes back first", func(t *testing.T) {
			x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1"))
			x.adopt()
			rolledOut := func(value string) {
				t.Helper()
				x.set(secret("db", "password", value))
				x.tick(time.Minute)
				if d := x.act(); d.Action != policy.RollOut {
					t.Fatalf("decision = %+v, want action RollOut", d)
				}
			}
			rolledOut("2")
			good := x.deployment.DeepCopy()
			x.tick(time.Hour)
			x.deployment.Generation = 2 // the next rollout has begun
			rolledOut("3")
			x.tick(10 * time.Minute)
			content := func() { x.set(secret("db", "password", "2")) }
			template := func() {
				x.edit(func(d *appsv1.Deployment) {
					d.Spec, d.Annotations = good.Spec, maps.Clone(good.Annotations)
					d.Generation, d.Status.ObservedGeneration = 3, 3
				})
			}
			if first == "content" {
				content()
				x.tick(time.Second)
				template()
			} else {
				template()
				x.tick(time.Second)
				content()
			}
			x.tick(time.Minute)
			if d := x.decide(); d.Action != policy.Inspect {
				t.Errorf("decision = %+v, want action Inspect", d)
			}
		})
	}
}

// TestDecide_RollbackToATemplateThatCarriesTheHash_TellsWhen: excursions are the periods since the creation of
// the template's pods in which content differed from the hash.
func TestDecide_RollbackToATemplateThatCarriesTheHash_TellsWhen(t *testing.T) {
	x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1"))
	x.edit(func(d *appsv1.Deployment) {
		d.Spec.Template.Annotations = map[string]string{policy.ConfigHashAnnotation: x.evaluate().Hash}
	})
	x.adopt()
	x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image, d.Generation = "app:2", 2 })
	x.tick(time.Minute)
	want := policy.Excursion{ID: "Secret/db", From: x.now, Containers: []string{"app"}, OlderPods: true, Witnessed: true}
	x.set(secret("db", "password", "2"))
	x.tick(time.Minute)
	want.To = x.now
	x.set(secret("db", "password", "1"))
	x.tick(time.Minute)
	x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image, d.Generation = "", 3 })
	if diff := cmp.Diff([]policy.Excursion{want}, x.decide().Excursions, cmpopts.IgnoreUnexported(policy.Excursion{})); diff != "" {
		t.Errorf("excursions (-want +got):\n%s", diff)
	}
}

// TestDecide_OrderOfRevisionsBeatsClocks: the clock of the API server that wrote the content was behind the
// clock of the one that wrote the template. This process saw both writes in their order.
func TestDecide_OrderOfRevisionsBeatsClocks(t *testing.T) {
	x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1"))
	x.adopt()
	x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "app:2" })
	x.tick(-5 * time.Second)
	x.set(secret("db", "password", "2"))
	x.tick(time.Minute)
	if d := x.decide(); d.Action != policy.RollOut {
		t.Errorf("decision = %+v, want action RollOut", d)
	}
}
