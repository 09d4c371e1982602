// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"context"
	"testing"

	testingclock "k8s.io/utils/clock/testing"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/kind"
)

// docked is an index that has synced at revision 100 while boats were not served.
func docked(t *testing.T) (*Index, *stream) {
	t.Helper()
	scope := Scope{Kinds: append(kind.BuiltIn(), boats())}
	x, _ := syncedWithin(t, scope, []any{deployment("web", 5, "db")}, []any{secret("db", 6)})
	clear(x.unprobed)
	x.progress.OneCounter = true
	return x, scope.workloads(scope.Kinds[len(scope.Kinds)-1], nil)
}

func boat(name string, version int) *object { return workloadObject("Boat", name, version, "db") }

// While other replicas may read other streams, versions are not compared, and then those from that time are expired.
func TestOptionalStreams_OthersFollow(t *testing.T) {
	for name, change := range map[string]func(*Index, *stream){
		"comes": func(x *Index, s *stream) { x.replace(s, []any{boat("ark", 90)}, "110") },
		"goes": func(x *Index, s *stream) {
			x.leave(s)
		},
	} {
		t.Run(name, func(t *testing.T) {
			x, s := docked(t)
			now := newFakeClock(x)
			if name == "goes" {
				x.replace(s, []any{boat("ark", 90)}, "105")
				now.SetTime(now.Now().Add(othersFollow))
				x.bookmark(namespaces, "106")
			}
			if p := x.Progress(); !p.OneCounter {
				t.Fatalf("before: %+v", p)
			}
			change(x, s)
			x.bookmark(namespaces, "120")
			if p := x.Progress(); p.OneCounter || p.SeveralCounters {
				t.Errorf("meanwhile: %+v", p)
			}
			now.SetTime(now.Now().Add(othersFollow - 1))
			x.bookmark(namespaces, "130")
			if p := x.Progress(); p.OneCounter {
				t.Errorf("a moment before the end: %+v", p)
			}
			now.SetTime(now.Now().Add(1))
			x.bookmark(namespaces, "140")
			if p := x.Progress(); !p.OneCounter || p.Floor != 140 {
				t.Errorf("afterwards: %+v", p)
			}
			x.bookmark(namespaces, "150")
			if p := x.Progress(); p.Floor != 140 {
				t.Errorf("later: %+v", p)
			}
		})
	}
}

// That a kind is not there is noted again and again, for each of many. If nothing of it was read, nothing is looked for.
func TestLeave_NothingWasRead(t *testing.T) {
	x, s := docked(t)
	before := x.current()
	if x.leave(s) {
		t.Error("the index has synced twice")
	}
	if x.current() != before {
		t.Error("the graph has been changed")
	}
	x.replace(s, []any{boat("ark", 90)}, "105")
	read := x.current()
	x.leave(s)
	if key := workloadOf(boat("ark", 90)).WorkloadKey; read.Workload(key) == nil || x.current().Workload(key) != nil {
		t.Error("what was read is still there")
	}
}

// A kind whose revisions are of another counter is noticed before its list is applied.
func TestAdmit(t *testing.T) {
	for name, tt := range map[string]struct {
		boats, namespaces uint64
		several           bool
	}{
		"one counter":  {110, 111, false},
		"the same":     {110, 110, false},
		"lower":        {99, 111, true},
		"higher":       {1000, 111, true},
		"not yet seen": {100, 100, false},
	} {
		t.Run(name, func(t *testing.T) {
			x, s := docked(t)
			revision := func(_ context.Context, of *stream) (uint64, error) {
				if of == s {
					return tt.boats, nil
				}
				return tt.namespaces, nil
			}
			must(t, x.admit(quiet(t), s, namespaces, revision))
			if got := x.progress.SeveralCounters; got != tt.several {
				t.Errorf("several counters: %t", got)
			}
		})
	}
	x, s := docked(t)
	none := func(context.Context, *stream) (uint64, error) { return 0, errNoJSON }
	if err := x.admit(quiet(t), s, namespaces, none); err == nil {
		t.Error("no error, though the revision is not known")
	}
	x.replace(s, nil, "110")
	must(t, x.admit(quiet(t), s, namespaces, none)) // it is read already
}

// A stream whose list is about to be applied is awaited, and one that has failed is not.
func TestGiveUp(t *testing.T) {
	r := &recorder{}
	scope := Scope{Kinds: append(kind.BuiltIn(), boats())}
	x, _ := newTestIndex(r, "deployments", boatsName)
	s := scope.workloads(scope.Kinds[len(scope.Kinds)-1], nil)
	x.scope = scope
	x.Reset()
	must(t, x.admit(quiet(t), s, namespaces, nil))
	x.replace(deployments, nil, "100")
	if x.giveUp(s) || x.Synced() == nil {
		t.Error("a list that is about to be applied is not awaited")
	}
	if !x.replace(s, []any{boat("ark", 90)}, "100") {
		t.Error("not the last of the first lists")
	}
	if x.giveUp(s) {
		t.Error("the index has synced twice")
	}
	x.Reset()
	x.replace(deployments, nil, "100")
	if !x.giveUp(s) || x.Synced() != nil || x.unprobed[boatsName] {
		t.Error("a stream that has failed is awaited")
	}
}

func newFakeClock(x *Index) *testingclock.FakePassiveClock {
	return x.clock.(*testingclock.FakePassiveClock) //nolint:forcetypeassert // newTestIndex sets it
}

// In another version of the definition, an object may look different, though its own version is the same.
func TestOptionalStreams_AnotherVersion(t *testing.T) {
	x, s := docked(t)
	x.replace(s, []any{boat("ark", 90)}, "110")
	users := func() int {
		return len(x.graph.Users(dependency.SourceKey{Kind: dependency.Secret, Namespace: "ns", Name: "other"}))
	}
	other := func() []any { return []any{workloadObject("Boat", "ark", 90, "other")} }
	x.replace(s, other(), "111")
	if users() != 0 {
		t.Error("an object was read again in the same version")
	}
	s = s.served(true)
	x.replace(s, other(), "112")
	if users() != 1 || s.again {
		t.Errorf("users = %d, read again once more: %t", users(), s.again)
	}
}
