// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
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
		"content is recorded":                       {func(*world) {}, final},
		"content has changed":                       {change, timed},
		"content has changed, and has settled":      {both(change, func(x *world) { x.tick(time.Hour) }), timed},
		"content has changed, on hold":              {both(change, paused), timed},
		"content has changed and changed back":      {thereAndBack, provisional},
		"the same, on hold for another reason":      {both(thereAndBack, invalid), provisional},
		"the same, not seen by this process":        {func(x *world) { x.away(func() { thereAndBack(x) }) }, final},
		"on hold, and nothing has changed":          {invalid, final},
		"on hold, and content has changed":          {both(change, invalid), timed},
		"a source is missing":                       {func(x *world) { x.remove(dependency.Secret, "db") }, timed},
		"the record is removed":                     {dropped, timed},
		"the record is removed, and the workload":   {both(dropped, deleted), provisional},
		"the workload is deleted":                   {deleted, final},
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

func scaledDown(x *world) {
	x.edit(func(d *appsv1.Deployment) { d.Spec.Replicas = new(int32(0)) })
}
