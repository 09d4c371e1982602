// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/workload/workloadtest"
)

// A decision says whether a replica that has read the same, but has seen less of it happen, may decide otherwise, and
// whether that one would take its decision for final.
func TestDecide_TimedAndProvisional(t *testing.T) {
	type certainty struct{ timed, provisional bool }
	final, timed, provisional := certainty{}, certainty{timed: true}, certainty{timed: true, provisional: true}
	change := func(x *world) { x.set(secret("db", "password", "2")) }
	thereAndBack := both(change, func(x *world) { x.set(secret("db", "password", "1")) })
	paused := func(x *world) { x.edit(func(d *appsv1.Deployment) { d.Spec.Paused = true }) }
	invalid := func(x *world) { x.annotate(policy.SettleAnnotation, "soon") }
	dropped := func(x *world) { x.annotate(policy.ConfigHashAnnotation, "", policy.AppliedSourcesAnnotation, "") }
	deleted := func(x *world) {
		x.edit(func(d *appsv1.Deployment) {
			now := metav1.NewTime(x.now)
			d.DeletionTimestamp, d.Finalizers = &now, []string{"example.com/wait"}
		})
	}
	for name, tt := range map[string]struct {
		do   func(*world)
		want certainty
	}{
		"the strategy was changed during evictions": {func(x *world) { x.annotate(policy.RecreatingAnnotation, "abc") }, timed},
		"pods were found to differ": {func(x *world) {
			thereAndBack(x)
			x.patch(x.evaluate().MixedPatch([]string{"Secret/db"}))
		}, timed},
		"only the hash was recorded when this process began, and content changes": {both(func(x *world) {
			x.away(func() { x.annotate(policy.AppliedSourcesAnnotation, "") })
		}, change), timed},
		"pods are being evicted": {func(x *world) {
			x.annotate(policy.RecreatingAnnotation, policy.EncodePods(nil), policy.StrategyAnnotation, "recreate")
		}, final},
		"what counts has changed, and has yet to be recorded": {func(x *world) { x.annotate(policy.ExcludeAnnotation, "secret/db") }, timed},
		"pods of a new template have read what has changed back, on hold": {both(change, func(x *world) {
			x.edit(func(d *appsv1.Deployment) {
				d.Spec.Template.Spec.Containers[0].Image, d.Generation, d.Status.ObservedGeneration = "app:2", 3, 3
			})
			x.set(secret("db", "password", "1"))
		}, paused), provisional},
		"content has changed before a template, and another template is on hold": {both(change, func(x *world) {
			x.edit(func(d *appsv1.Deployment) {
				d.Spec.Template.Spec.Containers[0].Image, d.Generation, d.Status.ObservedGeneration = "app:2", 3, 3
			})
		}, paused, func(x *world) {
			x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "app:3" })
		}), timed},
		"content is recorded":                     {func(*world) {}, final},
		"content has changed":                     {change, timed},
		"content has changed, and has settled":    {both(change, func(x *world) { x.tick(time.Hour) }), timed},
		"content has changed, on hold":            {both(change, paused), timed},
		"content has changed and changed back":    {thereAndBack, provisional},
		"the same, on hold for another reason":    {both(thereAndBack, invalid), provisional},
		"the same, not seen by this process":      {func(x *world) { x.away(func() { thereAndBack(x) }) }, final},
		"on hold, and nothing has changed":        {invalid, final},
		"on hold, and content has changed":        {both(change, invalid), timed},
		"a source is missing":                     {func(x *world) { x.remove(dependency.Secret, "db") }, timed},
		"the record is removed":                   {dropped, timed},
		"the record is removed, and the workload": {both(dropped, deleted), provisional},
		"the record is removed, and a source is missing": {func(x *world) {
			dropped(x)
			x.remove(dependency.Secret, "db")
		}, provisional},
		"the workload is deleted": {deleted, final},
		"matched, and a source that counted has gone": {func(x *world) {
			x.annotate(policy.ReloadAnnotation, "matched")
			marked := secret("db", "password", "1")
			marked.Annotations = map[string]string{policy.MatchAnnotation: "true"}
			x.set(marked)
			x.act()
			x.remove(dependency.Secret, "db")
			x.edit(func(d *appsv1.Deployment) { d.DeletionTimestamp = &metav1.Time{Time: x.now} })
		}, timed},
		"opted out":                                       {func(x *world) { x.annotate(policy.ReloadAnnotation, "off") }, final},
		"opted out, and content has changed":              {both(change, func(x *world) { x.annotate(policy.ReloadAnnotation, "off") }), final},
		"the record was removed while nothing looked":     {func(x *world) { x.away(func() { dropped(x) }) }, timed},
		"the record of the hash alone, content changed":   {both(func(x *world) { x.annotate(policy.AppliedSourcesAnnotation, "") }, change), timed},
		"a rollout is not complete":                       {func(x *world) { x.edit(func(d *appsv1.Deployment) { d.Status.UpdatedReplicas = 0 }) }, final},
		"it has been scaled down, and content changes":    {both(scaledDown, thereAndBack), provisional},
		"the hash key has been replaced":                  {func(x *world) { x.replaceKey() }, timed},
		"the hash key has been replaced, content too":     {both(func(x *world) { x.replaceKey() }, change), timed},
		"pods have read what the record does not say yet": {both(change, func(x *world) { x.act(); x.tick(time.Hour); x.act() }), final},
	} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1"))
			x.adopt()
			tt.do(x)
			d := x.decide()
			if got := (certainty{d.Timed, d.Provisional}); got != tt.want {
				t.Errorf("%s, %s (%s): %+v, want %+v", d.State, d.Reason, d.Message, got, tt.want)
			}
		})
	}
}

// Every replica reads that pods are left of a restart which another strategy has to do. While that is on hold, it must not matter what else
// one of them has seen.
func TestDecide_StaleWhilePodsAreLeftOnHold(t *testing.T) {
	for name, hold := range map[string]func(*world){
		"a source is missing":      func(x *world) { x.remove(dependency.Secret, "tls") },
		"an annotation is invalid": func(x *world) { x.annotate(policy.SettleAnnotation, "soon") },
	} {
		for _, saw := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, saw that content changed back: %v", name, saw), func(t *testing.T) {
				x := newWorld(t, podOf(env(dependency.Secret, "db", "password"), env(dependency.Secret, "tls", "key")),
					secret("db", "password", "1"), secret("tls", "key", "1"))
				x.annotate(policy.ExcludeAnnotation, "secret/tls", policy.StrategyAnnotation, "recreate")
				x.adopt()
				x.annotate(policy.RecreatingAnnotation, "12345678")
				thereAndBack := func() {
					x.set(secret("db", "password", "2"))
					x.set(secret("db", "password", "1"))
				}
				if saw {
					thereAndBack()
				} else {
					x.away(thereAndBack)
				}
				hold(x)
				if d := x.decide(); d.State != policy.Blocked || d.Stale {
					t.Errorf("before the strategy changes: %s, stale %v", d.State, d.Stale)
				}
				x.annotate(policy.StrategyAnnotation, "")
				if e, d := x.evaluate(), x.decide(); d.State != policy.Blocked || !d.Stale || !d.Timed || d.Provisional || e.InDoubt() != saw {
					t.Errorf("%s, stale %v, timed %v, provisional %v, in doubt %v", d.State, d.Stale, d.Timed, d.Provisional, e.InDoubt())
				}
				x.edit(func(d *appsv1.Deployment) {
					d.Spec.Replicas, d.Status = new(int32), appsv1.DeploymentStatus{ObservedGeneration: d.Generation}
				})
				if d := x.decide(); d.Stale {
					t.Error("without pods, they are stale")
				}
			})
		}
	}
}

// What does not depend on a record is final, for any number of workloads without one: clients are sent all others when they
// change the replica.
func TestDecide_FinalWithoutARecord(t *testing.T) {
	x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1"))
	template := x.deployment.Spec.Template
	auto := map[string]string{policy.ReloadAnnotation: "auto"}
	for name, tt := range map[string]struct {
		workload *dependency.Workload
		timed    bool
	}{
		"a Deployment that has not opted in": {workloadtest.Read(&appsv1.Deployment{Spec: appsv1.DeploymentSpec{Template: template}}), false},
		"a CronJob": {workloadtest.Read(&batchv1.CronJob{
			ObjectMeta: metav1.ObjectMeta{Annotations: auto},
			Spec:       batchv1.CronJobSpec{JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: template}}},
		}), false},
		"a DaemonSet without nodes, with a record of another key": {workloadtest.Read(&appsv1.DaemonSet{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{policy.ReloadAnnotation: "auto", policy.ConfigHashAnnotation: "v1.00000000.00"}},
			Spec:       appsv1.DaemonSetSpec{Template: template},
		}), true},
	} {
		tt.workload.Namespace = namespace
		if d := x.known().Evaluate(tt.workload).Decide(policy.Observed{Now: epoch}); d.Timed != tt.timed || d.Provisional {
			t.Errorf("%s: %s, %s is timed: %t, provisional: %t; want %t, false", name, d.State, d.Reason, d.Timed, d.Provisional, tt.timed)
		}
	}
}

func scaledDown(x *world) {
	x.edit(func(d *appsv1.Deployment) { d.Spec.Replicas = new(int32(0)) })
}
