// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"fmt"
	"math/rand"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Matched returns the same as a search through all sources, however many there are and however much of the result
// was cached.
func TestGraph_Matched(t *testing.T) { withSeeds(t, 1, matchedAfterAnyChanges) }

func matchedAfterAnyChanges(t *testing.T, r *rand.Rand) {
	t.Helper()
	g, n := NewGraph(), newNaive()
	glob, exclude := Pattern{Secret, "s-*"}, []Pattern{{Secret, "s-1*0"}, {ConfigMap, "*"}}
	g.SetWorkload(&Workload{WorkloadKey: WorkloadKey{Deployment, "shop", "web"}}, Patterns{[]Pattern{glob}, exclude})
	for _, most := range []int{400, 150, 20, 400} { // the number of sources, so that it grows and shrinks
		for step := range 1500 {
			key := SourceKey{Secret, "shop", fmt.Sprint(pick(r, "s-", "s-", "s-", "s-", "t-"), r.Intn(400))}
			if r.Intn(400) < most {
				s := &Source{SourceKey: key, SourceMarks: SourceMarks{Ignored: r.Intn(10) == 0}, LastChangeTime: at(r.Intn(1000))}
				g.SetSource(s)
				n.sources[key] = s
			} else {
				g.DeleteSource(key, Arrival{})
				delete(n.sources, key)
			}
			if r.Intn(20) != 0 { // otherwise, all cached results grow or shrink in the meantime
				continue
			}
			if diff := cmp.Diff(n.matched("shop", glob, exclude), describeMatched(g.Matched("shop", glob, exclude))); diff != "" {
				t.Fatalf("step %d of %d (-want +got):\n%s", step, most, diff)
			}
		}
	}
}
