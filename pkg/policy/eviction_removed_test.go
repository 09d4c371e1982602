// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
)

// TestDecide_RecordRemovedDuringAnEvictionWithoutPods: the record is written again before the eviction
// ends. In the opposite order, the end would change nothing.
func TestDecide_RecordRemovedDuringAnEvictionWithoutPods(t *testing.T) {
	x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1"))
	x.annotate(policy.StrategyAnnotation, "recreate")
	x.adopt()
	x.annotate(policy.RecreatingAnnotation, policy.NoPod)
	x.edit(func(d *appsv1.Deployment) {
		d.Spec.Replicas, d.Status = new(int32), appsv1.DeploymentStatus{}
	})
	x.annotate(policy.ConfigHashAnnotation, "", policy.AppliedSourcesAnnotation, "", policy.RecreatingAnnotation, "")
	for _, want := range []policy.Action{policy.WriteBaseline, policy.Continue} {
		if d := x.act(); d.Action != want {
			t.Fatalf("decision = %+v, want action %s", d, want)
		}
	}
}

// TestDecide_RecordRemovedDuringAnEviction: the next write, of whatever kind, also restores the list of pods to evict and the
// last restart.
func TestDecide_RecordRemovedDuringAnEviction(t *testing.T) {
	last := policy.LastReload{Time: metav1.NewMicroTime(epoch), Trigger: "Secret/db", Streak: 3}
	for name, tt := range map[string]struct {
		do    func(*world)
		mixed []string
		want  policy.Action
	}{
		"a record": {func(*world) {}, nil, policy.WriteBaseline},
		"the result of an inspection": {func(x *world) {
			x.set(secret("db", "password", "2"))
			x.set(secret("db", "password", "1"))
		}, nil, policy.Inspect},
		"that pods differ": {func(x *world) {
			x.set(secret("db", "password", "2"))
			x.set(secret("db", "password", "1"))
		}, []string{"Secret/db"}, policy.Inspect},
	} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1"))
			x.annotate(policy.StrategyAnnotation, "recreate")
			x.adopt()
			x.annotate(policy.RecreatingAnnotation, "a1b2c3d4", policy.LastReloadAnnotation, last.JSON())
			x.annotate(policy.ConfigHashAnnotation, "", policy.AppliedSourcesAnnotation, "", policy.RecreatingAnnotation, "", policy.LastReloadAnnotation, "")
			if got := policy.LastReloadOf(x.workload()); got == nil || got.Streak != 3 {
				t.Errorf("last restart = %+v, want the one before the removal", got)
			}
			x.mixed = tt.mixed
			tt.do(x)
			if d := x.act(); d.Action != tt.want {
				t.Fatalf("decision = %+v, want action %s", d, tt.want)
			}
			if got := x.deployment.Annotations; got[policy.RecreatingAnnotation] != "a1b2c3d4" || got[policy.LastReloadAnnotation] != last.JSON() {
				t.Errorf("annotations = %v, want the list of pods and the last restart", got)
			}
		})
	}
}
