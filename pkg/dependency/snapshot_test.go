// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"fmt"
	"maps"
	"math/rand"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A snapshot stays the same however the graph changes, and can be read meanwhile.
func TestGraph_Snapshot(t *testing.T) { withSeeds(t, 1, snapshotsStay) }

func snapshotsStay(t *testing.T, r *rand.Rand) {
	t.Helper()
	g := NewGraph()
	namespace := func() string { return pick(r, "ns1", "ns2") }
	source := func() SourceKey {
		return SourceKey{pick(r, ConfigMap, Secret), namespace(), fmt.Sprint(pick(r, "a", "b"), r.Intn(150))}
	}
	workload := func() WorkloadKey {
		return WorkloadKey{pick(r, Deployment, CronJob), namespace(), fmt.Sprint("w", r.Intn(150))}
	}
	type taken struct {
		snapshot *Graph
		want     string
	}
	var snapshots []taken
	var readers sync.WaitGroup
	defer readers.Wait()
	for step := range 6000 {
		now := Arrival{Live: true, Seen: at(step).Time}
		switch r.Intn(9) {
		case 0, 1, 2:
			w := &Workload{WorkloadKey: workload(), ResourceVersion: fmt.Sprint(step)}
			for range r.Intn(5) {
				key := source()
				w.References = append(w.References, Reference{Kind: key.Kind, Name: key.Name})
			}
			var patterns Patterns
			if r.Intn(10) == 0 {
				patterns.Sources = []Pattern{{ConfigMap, pick(r, "a1*", "b*")}}
			}
			g.SetWorkload(w, patterns)
		case 3:
			g.DeleteWorkload(workload())
		case 4, 5:
			s := &Source{SourceKey: source(), ResourceVersion: fmt.Sprint(step), Keys: []KeyDigest{{Key: fmt.Sprint(step)}}}
			s.Remember(g.Source(s.SourceKey), g, now)
			g.SetSource(s)
		case 6:
			g.DeleteSource(source(), now)
		case 7:
			g.SetNamespace(namespace(), map[string]string{"step": fmt.Sprint(step)})
		case 8:
			g.SetTerminating(namespace(), r.Intn(2) == 0)
		}
		if r.Intn(100) == 0 {
			s := taken{g.Snapshot(), everythingIn(g)}
			snapshots = append(snapshots, s)
			readers.Go(func() {
				if diff := cmp.Diff(s.want, everythingIn(s.snapshot)); diff != "" {
					t.Errorf("while the graph changes, snapshot (-want +got):\n%s", diff)
				}
			})
		}
	}
	for _, s := range snapshots {
		if diff := cmp.Diff(s.want, everythingIn(s.snapshot)); diff != "" {
			t.Fatalf("after all changes, snapshot (-want +got):\n%s", diff)
		}
	}
}

// everythingIn returns everything that can be read from a graph.
func everythingIn(g *Graph) string {
	var b strings.Builder
	workloads, sources := g.Size()
	fmt.Fprintln(&b, workloads, sources)
	for _, namespace := range []string{"ns1", "ns2"} {
		for _, glob := range []string{"a1*", "b*"} {
			fmt.Fprintln(&b, describeMatched(g.Matched(namespace, Pattern{ConfigMap, glob}, nil)))
		}
	}
	g.EachNamespace(func(name string) {
		fmt.Fprintln(&b, name, g.Namespace(name), g.Terminating(&Workload{WorkloadKey: WorkloadKey{Namespace: name}}))
	})
	g.EachWorkload(func(w *Workload) {
		var named []Pattern
		if x := g.extra.get(w.WorkloadKey); x != nil {
			named = x.patterns.Sources
		}
		fmt.Fprintln(&b, w.WorkloadKey, w.ResourceVersion, g.Workload(w.WorkloadKey) == w, len(g.References(w, named)))
	})
	keys := map[SourceKey]bool{}
	g.EachSource(func(s *Source) {
		fmt.Fprintln(&b, s.SourceKey, s.ResourceVersion, g.Source(s.SourceKey) == s)
		keys[s.SourceKey] = true
	})
	g.EachWorkload(func(w *Workload) {
		for i := range w.References {
			keys[SourceKey{w.References[i].Kind, w.Namespace, w.References[i].Name}] = true
		}
	})
	for _, key := range slices.SortedFunc(maps.Keys(keys), func(a, b SourceKey) int { return compareSources(&a, &b) }) {
		fmt.Fprintln(&b, key, g.Used(key), g.Users(key), len(g.Periods(key)))
	}
	return b.String()
}
