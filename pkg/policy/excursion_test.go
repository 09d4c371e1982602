// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
)

// With several revision counters, a change that is read after the record may have happened before it.
func TestDecide_ExcursionsOfSeveralCounters(t *testing.T) {
	pod := podOf(env(dependency.Secret, "db", "password"))
	t.Run("content changes and changes back", func(t *testing.T) {
		x := newWorld(t, pod, secret("db", "password", "1"))
		x.SeparateCounters()
		x.adopt()
		x.set(secret("db", "password", "2"))
		x.set(secret("db", "password", "1"))
		if diff := cmp.Diff(inspect("Secret/db"), outcomeOf(x.decide())); diff != "" {
			t.Errorf("decision (-want +got):\n%s", diff)
		}
	})
	t.Run("the record of another replica is read before the change", func(t *testing.T) {
		x := newWorld(t, pod, secret("db", "password", "1"))
		x.SeparateCounters()
		x.adopt()
		present := newWorld(t, pod, secret("db", "password", "2")).evaluate().Present()
		x.annotate(policy.ConfigHashAnnotation, present.Hash, policy.AppliedSourcesAnnotation, present.SourcesJSON())
		x.set(secret("db", "password", "2"))
		if diff := cmp.Diff(nothing, outcomeOf(x.decide())); diff != "" {
			t.Errorf("decision (-want +got):\n%s", diff)
		}
	})
	t.Run("content changes back to what a lagging replica has recorded", func(t *testing.T) {
		x := newWorld(t, pod, secret("db", "password", "1"))
		x.adopt()
		x.restart()
		x.SeparateCounters()
		x.set(secret("db", "password", "2"))
		for _, password := range []string{"2", "1"} {
			r := newWorld(t, pod, secret("db", "password", password)).evaluate().Present()
			x.annotate(policy.ConfigHashAnnotation, r.Hash, policy.AppliedSourcesAnnotation, r.SourcesJSON())
		}
		x.set(secret("db", "password", "1"))
		if diff := cmp.Diff(inspect("Secret/db"), outcomeOf(x.decide())); diff != "" {
			t.Errorf("decision (-want +got):\n%s", diff)
		}
	})
}

// A container has read what was written before it started, by the clock of the API server.
func TestDecide_ExcursionsByTheClockOfTheServer(t *testing.T) {
	x := newWorld(t, podOf(optionalEnvFrom(dependency.Secret, "db")), secret("db", "password", "1"))
	x.adopt()
	ahead := metav1.NewTime(x.now.Add(time.Minute))
	x.remove(dependency.Secret, "db")
	again := secret("db", "password", "1")
	again.ManagedFields = []metav1.ManagedFieldsEntry{{Time: &ahead, FieldsV1: metav1.NewFieldsV1(`{"f:data":{}}`)}}
	x.set(again)
	got := x.decide().Excursions
	if len(got) != 1 || !got[0].To.Equal(ahead.Time) || !slices.Equal(got[0].Containers, []string{"app"}) {
		t.Errorf("excursions = %+v, want one until %v", got, ahead)
	}
}

// The beginning of an excursion is not known if it was before this process started, or if pods may be older than the
// record. Its end is the later time of two clocks.
func TestDecide_ExcursionsWithoutABeginning(t *testing.T) {
	there := func(x *world) { x.set(secret("db", "password", "2")) }
	back := func(x *world) { x.set(secret("db", "password", "1")) }
	for name, tt := range map[string]struct {
		do        func(*world)
		from      time.Duration // relative to the end; 1: not known
		witnessed bool
	}{
		"seen":                      {both(there, func(x *world) { x.tick(time.Minute) }, back), -time.Minute, true},
		"before this process began": {both(func(x *world) { x.away(func() { there(x) }) }, func(x *world) { x.tick(time.Minute) }, back), 1, false},
		"before this process began, with several counters": {both(
			func(x *world) { x.away(func() { there(x) }); x.SeparateCounters() },
			func(x *world) { x.tick(time.Minute) }, back), 1, false},
		"by a clock that is behind": {func(x *world) {
			there(x)
			x.tick(time.Minute)
			before := metav1.NewTime(x.now.Add(-30 * time.Second))
			again := secret("db", "password", "1")
			again.ManagedFields = []metav1.ManagedFieldsEntry{{Time: &before, FieldsV1: metav1.NewFieldsV1(`{"f:data":{}}`)}}
			x.broken(func() { x.set(again) })
		}, -time.Minute, false},
		"with pods that may be older than the record": {both(
			func(x *world) {
				x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image, d.Generation = "app:2", 2 })
				x.tick(time.Minute)
				x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image, d.Generation = "", 3 })
				x.tick(time.Minute)
			}, there, func(x *world) { x.tick(time.Minute) }, back), 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1"))
			x.adopt()
			tt.do(x)
			var from time.Time
			if tt.from <= 0 {
				from = x.now.Add(tt.from)
			}
			got := x.evaluate().Decide(policy.Observed{Now: x.now}).Excursions
			if len(got) != 1 || !got[0].From.Equal(from) || !got[0].To.Equal(x.now) || got[0].Witnessed != tt.witnessed {
				t.Errorf("excursions = %+v, want one from %v to %v, witnessed: %t", got, from, x.now, tt.witnessed)
			}
		})
	}
}

// Sources of a glob change, are created and deleted: only the time of the last such event is known, not the first.
func TestDecide_ExcursionsOfGlobs(t *testing.T) {
	set := func(name, value string) func(*world) {
		return func(x *world) { x.set(secret(name, "k", value)); x.tick(time.Minute) }
	}
	remove := func(name string) func(*world) {
		return func(x *world) { x.remove(dependency.Secret, name); x.tick(time.Minute) }
	}
	listed := func(f func(*world)) func(*world) { return func(x *world) { x.broken(func() { f(x) }) } }
	act := func(x *world) { x.act() }
	several := func(x *world) { x.SeparateCounters() }
	for name, tt := range map[string]struct {
		before, do func(*world)
		here       bool // this replica wrote the record
		none       bool
		witnessed  bool
	}{
		"a source changes and changes back":                               {do: both(set("m-1", "2"), set("m-1", "1")), witnessed: true},
		"two sources change and change back":                              {do: both(set("m-1", "2"), set("m-2", "2"), set("m-1", "1"), set("m-2", "1")), witnessed: true},
		"a source is created and deleted":                                 {do: both(set("m-3", "1"), remove("m-3")), witnessed: true},
		"a source is created and deleted, after a record of this replica": {do: both(set("m-3", "1"), remove("m-3")), here: true, witnessed: true},
		"a source is deleted and created":                                 {do: both(remove("m-1"), set("m-1", "1")), witnessed: true},
		"a list shows that a source was created":                          {do: both(listed(set("m-3", "1")), remove("m-3")), witnessed: true},
		"a list shows that a source was deleted":                          {do: both(set("m-3", "1"), listed(func(x *world) { x.remove(dependency.Secret, "m-3") }), func(x *world) { x.tick(time.Minute) })},
		"all events were before the record":                               {do: both(set("m-3", "1"), remove("m-3"), act), none: true},
		"most events were before the record":                              {do: both(set("m-3", "1"), remove("m-3"), act, set("m-1", "2"), set("m-1", "1")), witnessed: true},
		"a source changes and changes back, with several counters":        {before: several, do: both(set("m-1", "2"), set("m-1", "1")), witnessed: true},
		// The record may be of a replica that had seen the deletion.
		"a source is created and deleted, with several counters": {before: several, do: both(set("m-3", "1"), remove("m-3")), none: true},
		"nothing changes, with several counters":                 {before: several, do: func(*world) {}, none: true},
		"a source outside the glob changes and changes back":     {do: both(set("n-1", "2"), set("n-1", "1")), none: true},
		"a source is created and deleted before a list":          {do: listed(both(set("m-3", "1"), remove("m-3"))), none: true},
	} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, podOf(), secret("m-1", "k", "1"), secret("m-2", "k", "1"), secret("n-1", "k", "1"))
			x.annotate(policy.SourcesAnnotation, "secret/m-*")
			if tt.before != nil {
				tt.before(x)
			}
			x.adopt()
			decided := x.graph().Order()
			tt.do(x)
			o := policy.Observed{Now: x.now}
			if tt.here {
				o.Decided = decided
			}
			switch got := x.evaluate().Decide(o).Excursions; {
			case tt.none:
				if len(got) > 0 {
					t.Errorf("excursions = %+v, want none", got)
				}
			case len(got) != 1 || got[0].ID != "Secret/m-*" || !got[0].From.IsZero() || !got[0].To.Equal(x.now.Add(-time.Minute)) || got[0].Witnessed != tt.witnessed:
				t.Errorf("excursions = %+v, want one until %v, witnessed: %t", got, x.now.Add(-time.Minute), tt.witnessed)
			}
		})
	}
}

// For a source that only an annotation names, the container is not known.
func TestDecide_ExcursionsOfWhatAnnotationsName(t *testing.T) {
	x := newWorld(t, podOf(), secret("db", "password", "1"))
	x.annotate(policy.SourcesAnnotation, "secret/db")
	x.adopt()
	x.set(secret("db", "password", "2"))
	x.set(secret("db", "password", "1"))
	if got := x.decide().Excursions; len(got) != 1 || got[0].Containers != nil {
		t.Errorf("excursions = %+v, want one of any container", got)
	}
}
