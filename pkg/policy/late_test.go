// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/policy"
)

// comingAndGoing returns the kinds, of which the Deployments may come and go as those of a definition do, and this one.
func comingAndGoing() (kind.Table, *kind.Kind) {
	kinds := kind.BuiltIn()
	k := &kind.Kind{
		Name: kinds[0].Name, Resource: kinds[0].Resource, Traits: kinds[0].Traits, New: kinds[0].New, From: kinds[0].From, Optional: true,
	}
	kinds[0] = k
	return kinds, k
}

// What changed before a kind was first listed is no change for its workloads, as at the start of a process, unless a record
// shows it. What changes later is one.
func TestKindThatIsListedLate(t *testing.T) {
	change := func(x *world) { x.set(secret("db", "password", "2")) }
	back := func(x *world) { x.set(secret("db", "password", "1")) }
	recreate := func(x *world) {
		x.remove(dependency.Secret, "db")
		x.set(secret("db", "password", "2"))
	}
	none := func(*world) {}
	for name, tt := range map[string]struct {
		recorded             bool // before the kind goes
		gone, listed, relist func(*world)
		want                 outcome
	}{
		"nothing changed":                        {false, none, none, nil, adoption},
		"changed before":                         {false, change, none, nil, adoption},
		"recreated before":                       {false, recreate, none, nil, adoption},
		"changed and changed back before":        {false, both(change, back), none, nil, adoption},
		"changed after":                          {false, none, change, nil, rollOut("Secret/db")},
		"changed before and back after":          {false, change, back, nil, rollOut("Secret/db")},
		"recreated after":                        {false, none, recreate, nil, rollOut("Secret/db")},
		"recorded, nothing changed":              {true, none, none, nil, nothing},
		"recorded, changed before":               {true, change, none, nil, rollOut("Secret/db")},
		"recorded, changed and changed back":     {true, both(change, back), none, nil, nothing},
		"recorded, changed after":                {true, none, change, nil, rollOut("Secret/db")},
		"changed while the watch was broken":     {false, none, none, change, rollOut("Secret/db")},
		"changed before, and the watch breaks":   {false, change, none, none, adoption},
		"changed after, and then it was written": {false, none, both(change, func(x *world) { x.annotate("a", "b") }), nil, rollOut("Secret/db")},
	} {
		for counters, separate := range map[string]bool{"one counter": false, "several counters": true} {
			t.Run(name+", "+counters, func(t *testing.T) {
				kinds, k := comingAndGoing()
				x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1"))
				if tt.recorded {
					x.adopt()
				}
				x.scope.Kinds = kinds
				x.Withdraw(k)
				x.restart()
				if separate {
					x.SeparateCounters()
				}
				if x.workload() != nil {
					t.Fatal("a workload is in the graph that cannot be read")
				}
				tt.gone(x)
				x.Serve(k)
				tt.listed(x)
				if tt.relist != nil {
					x.Relist(func() { tt.relist(x) })
				}
				if diff := cmp.Diff(tt.want, x.settled()); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		}
	}
}

// A kind that was read, and cannot be read for a while, is listed for the first time again.
func TestKindThatIsListedAgain(t *testing.T) {
	kinds, k := comingAndGoing()
	x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1"))
	x.scope.Kinds = kinds
	x.restart()
	x.set(secret("db", "password", "2"))
	if got := x.settled(); got != rollOut("Secret/db") {
		t.Errorf("changed while it was read: %+v", got)
	}
	x.Withdraw(k)
	if x.workload() != nil {
		t.Fatal("a workload is in the graph that cannot be read")
	}
	x.Serve(k)
	if got := x.settled(); got != adoption {
		t.Errorf("listed again: %+v", got)
	}
	if got := x.act(); got.Action != policy.WriteBaseline {
		t.Errorf("action = %s", got.Action)
	}
	x.set(secret("db", "password", "3"))
	if got := x.settled(); got != rollOut("Secret/db") {
		t.Errorf("changed later: %+v", got)
	}
}

// A workload that is created later, by an event, is not adopted with the list.
func TestKindThatIsListedLate_WorkloadThatIsRecreated(t *testing.T) {
	kinds, k := comingAndGoing()
	x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1"))
	x.scope.Kinds = kinds
	x.Withdraw(k)
	x.restart()
	x.Serve(k)
	if x.workload().ListedAt == (dependency.Moment{}) {
		t.Error("it is not known when the workload was first listed")
	}
	x.removeWorkload()
	x.edit(func(*appsv1.Deployment) {})
	if w := x.workload(); w.ListedAt != (dependency.Moment{}) || w.CreatedAt == (dependency.Moment{}) {
		t.Errorf("listed at %+v, created at %+v", w.ListedAt, w.CreatedAt)
	}
}

// settled returns the outcome once changes have settled.
func (x *world) settled() outcome {
	x.decide()
	x.tick(time.Minute)
	return outcomeOf(x.decide())
}
