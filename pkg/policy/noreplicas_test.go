// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/workload/workloadtest"
)

// A workload that is scaled to zero is never restarted: new pods will read the content at that time,
// and the record reflects that.
func TestDecide_NoReplicas(t *testing.T) {
	change := func(x *world) { x.set(secret("db", "password", "2")) }
	thereAndBack := func(x *world) {
		change(x)
		x.set(secret("db", "password", "1"))
	}
	const (
		idle   = "No pods run; new pods read the current content."
		ending = "The last pods are terminating; new pods read the current content."
		stale  = "Content has changed, and the last pods are terminating; new pods read the current content."
	)
	for name, tt := range map[string]struct {
		do   func(*world)
		pods int32 // that are still terminating
		want policy.Decision
	}{
		"no change": {
			func(*world) {}, 0,
			policy.Decision{State: policy.InSync, Reason: policy.ReasonNoPods, Message: idle},
		},
		"no change, and pods are terminating": {
			func(*world) {}, 1,
			policy.Decision{State: policy.InSync, Reason: policy.ReasonNoPods, Message: ending},
		},
		"a change": {
			change, 0,
			policy.Decision{State: policy.InSync, Reason: policy.ReasonNoPods, Action: policy.WriteBaseline, Message: idle},
		},
		"a change, and pods are terminating": {
			change, 1,
			policy.Decision{State: policy.Pending, Reason: "ScalingDown", Stale: true, Message: stale},
		},
		"content has changed and changed back": {
			thereAndBack, 0,
			policy.Decision{State: policy.InSync, Reason: policy.ReasonNoPods, Message: idle},
		},
		"content has changed and changed back, and pods are terminating": {
			thereAndBack, 1,
			policy.Decision{State: policy.Pending, Reason: "ScalingDown", Stale: true, Message: stale},
		},
		"nothing is recorded": {
			func(x *world) { x.annotate(policy.ConfigHashAnnotation, "garbage") }, 0,
			policy.Decision{State: policy.Pending, Reason: policy.ReasonNotRecorded, Action: policy.WriteBaseline,
				Message: "The content that the pods run with has not been recorded yet. Recording it restarts nothing; later changes restart the workload."},
		},
		"pods were being evicted": {
			func(x *world) { x.annotate(policy.StrategyAnnotation, "recreate", policy.RecreatingAnnotation, "none") }, 0,
			policy.Decision{State: policy.InSync, Reason: policy.ReasonNoPods, Action: policy.Continue, Message: idle},
		},
		"restarted before": {
			func(x *world) {
				last := policy.LastReload{Time: metav1.NewMicroTime(epoch), Trigger: "Secret/db"}
				x.annotate(policy.LastReloadAnnotation, last.JSON())
			}, 0,
			policy.Decision{State: policy.InSync, Reason: policy.ReasonNoPods, Trigger: "Secret/db", Message: idle},
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1"))
			x.adopt()
			x.edit(func(d *appsv1.Deployment) {
				d.Spec.Replicas = new(int32)
				d.Status = appsv1.DeploymentStatus{Replicas: tt.pods, UpdatedReplicas: tt.pods}
			})
			tt.do(x)
			if diff := cmp.Diff(tt.want, x.evaluate().Decide(policy.Observed{Now: x.now}), cmpopts.IgnoreFields(policy.Decision{}, "Timed", "Provisional")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A node, and with it a pod, may be added at any moment, so nothing is recorded for a DaemonSet.
func TestDecide_NoReplicasOfADaemonSet(t *testing.T) {
	x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1"))
	w := workloadtest.Read(&appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "agent", Annotations: map[string]string{policy.ReloadAnnotation: "auto"}},
		Spec:       appsv1.DaemonSetSpec{Template: x.deployment.Spec.Template},
	})
	got := x.known().Evaluate(w).Decide(policy.Observed{Now: epoch})
	want := policy.Decision{State: policy.InSync, Reason: policy.ReasonNoPods}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(policy.Decision{}, "Message", "Timed", "Provisional")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Workloads that are being deleted are left alone.
func TestDecide_Terminating(t *testing.T) {
	x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1"))
	x.adopt()
	x.set(secret("db", "password", "2"))
	x.edit(func(d *appsv1.Deployment) { d.DeletionTimestamp = &metav1.Time{Time: epoch} })
	got := x.evaluate().Decide(policy.Observed{Now: epoch.Add(time.Hour)})
	want := policy.Decision{State: policy.Unmanaged, Reason: policy.ReasonTerminating, Message: "The Deployment or its namespace is being deleted, so it will not be restarted."}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A CronJob without missing sources is in sync, whatever the content.
func TestDecide_CronJob(t *testing.T) {
	x := newWorld(t, podOf(), secret("db", "password", "1"))
	w := &dependency.Workload{
		WorkloadKey: dependency.WorkloadKey{Kind: kind.CronJob, Namespace: namespace, Name: "nightly"}, Traits: kind.Table(nil).Of(kind.CronJob).Traits,
		Annotations: map[string]string{policy.ReloadAnnotation: "auto"},
		References:  []dependency.Reference{{Kind: dependency.Secret, Name: "db", Uses: []dependency.Use{{Type: dependency.EnvFrom}}}},
	}
	got := x.known().Evaluate(w).Decide(policy.Observed{Now: epoch})
	if diff := cmp.Diff(outcome{State: policy.InSync, Reason: "NextRunReadsContent"}, outcomeOf(got)); diff != "" {
		t.Errorf("decision (-want +got):\n%s", diff)
	}
}
