// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"fmt"
	"maps"
	"math/rand"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// Whether there is room for the globs of a namespace depends only on its workloads, not on the order in
// which they arrived. When that changes for a workload, TakeChangedGlobs reports a glob of it.
func TestGraph_AdmitsGlobs(t *testing.T) { withSeeds(t, 5, admitsGlobs) }

func admitsGlobs(t *testing.T, r *rand.Rand) {
	t.Helper()
	g, known := NewGraph(), map[string]bool{}
	g.globWork = 3 + r.Intn(20)
	impossible := expression(MaxWorkOfGlob)
	refused := false
	for step := range 600 {
		key := WorkloadKey{Deployment, pick(r, "ns1", "ns2"), fmt.Sprint("w-", r.Intn(12))}
		if r.Intn(4) == 0 {
			g.DeleteWorkload(key)
		} else {
			w := &Workload{WorkloadKey: key}
			var p Patterns
			for range r.Intn(4) {
				p.Sources = append(p.Sources, Pattern{Secret, pick(r, "a*", "b*", "c*", "d*", "e*", "f*", expression(2), expression(3), "name", impossible)})
			}
			if r.Intn(3) == 0 {
				p.Exclude = []Pattern{{Secret, pick(r, "x", "y*")}}
			}
			g.SetWorkload(w, p)
		}
		changed := map[WorkloadKey]bool{}
		g.UsersOfGlobs(g.TakeChangedGlobs(), func(w WorkloadKey) { changed[w] = true })
		got := map[string]bool{}
		g.EachWorkload(func(w *Workload) { got[fmt.Sprint(w.WorkloadKey)] = g.Admitted(w.WorkloadKey) })
		if diff := gocmp.Diff(admittedIn(g, g.globWork), got, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("step %d (-want +got):\n%s", step, diff)
		}
		g.EachWorkload(func(w *Workload) {
			id := fmt.Sprint(w.WorkloadKey)
			if before, found := known[id]; found && before != got[id] && w.WorkloadKey != key && !changed[w.WorkloadKey] {
				t.Fatalf("step %d: %s admitted = %v, was %v, and TakeChangedGlobs does not report the change", step, id, got[id], before)
			}
			refused = refused || !got[id]
		})
		known = got
	}
	if !refused {
		t.Error("every workload was admitted, want some that are not")
	}
	for _, w := range slices.Collect(maps.Keys(known)) {
		var key WorkloadKey
		g.EachWorkload(func(other *Workload) {
			if fmt.Sprint(other.WorkloadKey) == w {
				key = other.WorkloadKey
			}
		})
		g.DeleteWorkload(key)
	}
	if n := len(g.globSpaces) + g.globs.len() + g.globUsers.len(); n != 0 {
		t.Errorf("after all workloads were deleted, %d entries are left", n)
	}
}

// admittedIn returns which workloads are admitted, computed from all of them.
func admittedIn(g *Graph, most int) map[string]bool {
	used, work := map[globID]bool{}, map[string]int{}
	g.EachWorkload(func(w *Workload) {
		if n := g.extra.get(w.WorkloadKey); n != nil {
			for _, id := range n.globs {
				if !used[id] && id.work() <= MaxWorkOfGlob {
					work[id.namespace] += id.work()
				}
				used[id] = true
			}
		}
	})
	admitted := map[globID]bool{}
	for id := range used {
		admitted[id] = id.work() <= MaxWorkOfGlob && work[id.namespace] <= most
	}
	out := map[string]bool{}
	g.EachWorkload(func(w *Workload) {
		n := g.extra.get(w.WorkloadKey)
		out[fmt.Sprint(w.WorkloadKey)] = n == nil || !slices.ContainsFunc(n.globs, func(id globID) bool { return !admitted[id] })
	})
	return out
}

// expression returns a pattern that is a regular expression of n bytes.
func expression(n int) string { return "^(?:" + strings.Repeat(".", n) + ")$" }

// A glob costs a namespace 1, and more for each byte if it is a regular expression, for exceptions that are globs, and
// for its length.
func TestGlobWork(t *testing.T) {
	long := strings.Repeat("a", 200)
	for _, tt := range []struct {
		name, except string
		want         int
	}{
		{"*", "", 1},
		{"app-*-*", "", 1},
		{expression(5), "", 6},
		{"*", "one,two", 1},
		{"*", "one-*", 2},
		{"*", "one-*,two-*", 3},
		{"*", "one-*," + expression(5), 8},
		{expression(1), expression(1), 4},
		{long + "*", "", 1},
		{long + "*", strings.Repeat("b", 54), 1},
		{long + "*", strings.Repeat("b", 55), 2},
		{long + "*", strings.Repeat("b", 256+55), 3},
	} {
		id := globID{except: tt.except}
		if id.Name = tt.name; id.work() != tt.want {
			t.Errorf("%q without %q: %d, want %d", tt.name, tt.except, id.work(), tt.want)
		}
	}
}

// A namespace has room for globs of MaxGlobWork in total; a single glob may cost at most MaxWorkOfGlob.
func TestGraph_AdmitsAsManyGlobsAsThereIsRoomFor(t *testing.T) {
	g := NewGraph()
	set := func(i int, name string) *Workload {
		w := &Workload{WorkloadKey: WorkloadKey{Deployment, "shop", fmt.Sprintf("w-%04d", i)}}
		g.SetWorkload(w, Patterns{Sources: []Pattern{{Kind: ConfigMap, Name: name}}})
		return w
	}
	large, fits := set(0, expression(MaxWorkOfGlob)), set(1, expression(MaxWorkOfGlob-1))
	if g.Admitted(large.WorkloadKey) || !g.Admitted(fits.WorkloadKey) {
		t.Errorf("a glob of work %d admitted = %t, want false; one of work %d admitted = %t, want true", MaxWorkOfGlob+1, g.Admitted(large.WorkloadKey), MaxWorkOfGlob, g.Admitted(fits.WorkloadKey))
	}
	for i := range MaxGlobWork - MaxWorkOfGlob {
		if w := set(10+i, fmt.Sprintf("%d-*", i)); !g.Admitted(w.WorkloadKey) {
			t.Fatalf("simple glob %d is not admitted", i)
		}
	}
	w := set(9000, "more-*")
	if g.Admitted(w.WorkloadKey) || g.Admitted(fits.WorkloadKey) {
		t.Error("globs of a namespace beyond the bound are admitted")
	}
	g.DeleteWorkload(w.WorkloadKey)
	if !g.Admitted(fits.WorkloadKey) {
		t.Error("once there is room again, a glob is not admitted")
	}
}
