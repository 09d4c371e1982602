// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
)

// TestDecide_OptsInAgainWhilePodsAreLeft: the workload opted out before all pods were evicted.
func TestDecide_OptsInAgainWhilePodsAreLeft(t *testing.T) {
	replaceTemplate := func(x *world) {
		x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "2" })
	}
	for name, tt := range map[string]struct {
		meanwhile func(*world)
		want      outcome
	}{
		"nothing else happens":                                 {func(*world) {}, rollOut(policy.TriggerUnknown)},
		"a new process looks":                                  {(*world).restart, rollOut(policy.TriggerUnknown)},
		"the key of the hash is replaced":                      {func(x *world) { x.rekey(1, func(*world) {}, func(*world) {}) }, rollOut(policy.TriggerUnknown)},
		"another scope counts when it opts in":                 {func(x *world) { x.annotate(policy.ExcludeAnnotation, "configmap/*") }, rollOut(policy.TriggerUnknown)},
		"all pods have been replaced":                          {replaceTemplate, baseline},
		"all pods have been replaced, and a new process looks": {func(x *world) { replaceTemplate(x); x.restart() }, outcome{policy.Pending, policy.ReasonVerifying, policy.Verify, policy.TriggerUnknown}},
		"another template comes and goes in the middle of its rollout": {func(x *world) {
			x.edit(func(d *appsv1.Deployment) {
				d.Spec.Template.Spec.Containers[0].Image = "2"
				d.Generation, d.Status.ObservedGeneration = 2, 1
			})
			x.tick(time.Minute)
			x.edit(func(d *appsv1.Deployment) {
				d.Spec.Template.Spec.Containers[0].Image = ""
				d.Generation, d.Status.ObservedGeneration = 3, 3
			})
		}, inspect("ConfigMap/c")},
	} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, podOf(env(dependency.Secret, "db", "password"), envFrom(dependency.ConfigMap, "c")), secret("db", "password", "1"), configMap("c", "a", "1"))
			x.adopt()
			x.set(secret("db", "password", "2"))
			x.annotate(policy.ReloadAnnotation, "off", policy.RecreatingAnnotation, "a1b2c3d4")
			d := x.decide()
			if d.State != policy.Unmanaged || d.Action != policy.Abandon {
				t.Fatalf("when the workload opts out: decision = %+v, want state Unmanaged and action Abandon", d)
			}
			e := x.evaluate()
			x.patch(policy.AbandonedPatch(e.Workload, e.Present()))
			if d := x.decide(); d.Action != policy.None {
				t.Fatalf("once the opt-out is recorded: decision = %+v, want no action", d)
			}
			x.tick(time.Minute)
			tt.meanwhile(x)
			x.tick(time.Minute)
			x.annotate(policy.ReloadAnnotation, "auto")
			if got := outcomeOf(x.decide()); got != tt.want {
				t.Errorf("when the workload opts in again: %+v, want %+v", got, tt.want)
			}
		})
	}
}
