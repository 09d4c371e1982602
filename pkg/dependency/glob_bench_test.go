// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"fmt"
	"testing"
)

// BenchmarkGraph_SetSourceOfGlobs measures how long a change of a source takes in a namespace with n globs, during
// which nothing else can read the graph. All globs match the source, or all start with the same prefix as its
// name, or none matches it.
func BenchmarkGraph_SetSourceOfGlobs(b *testing.B) {
	for name, glob := range map[string]string{"wide": "%d", "near": "source-*-%d", "narrow": "app-%d-*", "classes": "s*[a-z]*%d"} {
		for _, n := range []int{250, 500, 1000, 2000, 4000} {
			b.Run(fmt.Sprint(name, "/", n), func(b *testing.B) {
				g := NewGraph()
				for i := range n {
					pattern := fmt.Sprintf(glob, i)
					if name == "wide" { // different exclusions make the globs distinct
						pattern = "source-*"
					}
					g.SetWorkload(&Workload{WorkloadKey: WorkloadKey{Deployment, "shop", fmt.Sprint("web-", i)}},
						Patterns{Sources: []Pattern{{Secret, pattern}}, Exclude: []Pattern{{Secret, fmt.Sprint("other-", i)}}})
				}
				for i := range 1000 {
					g.SetSource(&Source{SourceKey: SourceKey{Secret, "shop", fmt.Sprint("source-", i)}})
				}
				read := func(g *Graph) {
					g.EachWorkload(func(w *Workload) {
						p := g.patternsOf(w.WorkloadKey)
						g.Matched("shop", p.Sources[0], p.Exclude, nil)
					})
				}
				read(g)
				for i := 0; b.Loop(); i++ {
					b.StopTimer()
					s := g.Snapshot() // as after each event
					if i%10 == 0 {
						read(s)
					}
					b.StartTimer()
					g.SetSource(&Source{SourceKey: SourceKey{Secret, "shop", fmt.Sprint("source-", i%1000)}, Change: Change{Order: uint64(i + 1)}})
				}
			})
		}
	}
}
