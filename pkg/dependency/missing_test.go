// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"math/rand"
	"slices"
	"testing"
	"time"
)

// For each source to which a workload refers, by its template or by annotations, it is known since when the source
// has been missing, even if no workload or another one referred to the source when it was deleted.
func TestGraph_MissingSince(t *testing.T) { withSeeds(t, 30, missingSince) }

func missingSince(t *testing.T, r *rand.Rand) {
	t.Helper()
	g := NewGraph()
	type workload struct{ reads, named []string }
	names := []string{"a", "b", "c", "d"}
	present, deleted, workloads := map[SourceKey]bool{}, map[SourceKey]uint64{}, map[WorkloadKey]workload{}
	checked := 0
	for step := range 500 {
		version := uint64(step + 1)
		source := SourceKey{ConfigMap, pick(r, "ns1", "ns2"), pick(r, names...)}
		key := WorkloadKey{Deployment, source.Namespace, pick(r, "w", "x", "y")}
		switch r.Intn(6) {
		case 0:
			g.SetSource(&Source{SourceKey: source})
			present[source] = true
		case 1, 2:
			g.DeleteSource(source, Change{Version: version, Seen: day.Add(time.Duration(step) * time.Second), Order: version})
			if present[source] {
				deleted[source] = version
			}
			delete(present, source)
		case 3:
			g.DeleteWorkload(key)
			delete(workloads, key)
		default:
			var w workload
			var patterns Patterns
			var reads []string
			for _, name := range names {
				switch r.Intn(4) {
				case 0:
					w.reads, reads = append(w.reads, name), append(reads, "?"+name)
				case 1:
					w.named = append(w.named, name)
					patterns.Sources = append(patterns.Sources, Pattern{Kind: ConfigMap, Name: name})
				}
			}
			g.SetWorkload(&Workload{WorkloadKey: key, References: referencesOf(pod(reads...))}, patterns)
			workloads[key] = w
		}
		for key, w := range workloads {
			for _, name := range slices.Concat(w.reads, w.named) {
				source := SourceKey{ConfigMap, key.Namespace, name}
				if present[source] {
					continue
				}
				if checked++; g.missingSince(source) != deleted[source] {
					t.Fatalf("step %d: %v, which %v names, missing since %d, want %d", step, source, key, g.missingSince(source), deleted[source])
				}
			}
		}
	}
	if checked == 0 {
		t.Error("no source was missing")
	}
}
