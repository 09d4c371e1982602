// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"fmt"
	"math/rand"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Matched returns the same as a search through all sources, however many there are and however much of the result
// was cached.
func TestGraph_Matched(t *testing.T) { withSeeds(t, 1, matchedAfterAnyChanges) }

func matchedAfterAnyChanges(t *testing.T, r *rand.Rand) {
	t.Helper()
	g, n := NewGraph(), newNaive()
	glob, exclude := Pattern{Secret, "s-*"}, []Pattern{{Secret, "s-1?0"}, {ConfigMap, "*"}}
	g.SetWorkload(&Workload{WorkloadKey: WorkloadKey{Deployment, "shop", "web"}}, Patterns{[]Pattern{glob}, exclude})
	for _, most := range []int{400, 150, 20, 400} { // the number of sources, so that it grows and shrinks
		for step := range 1500 {
			key := SourceKey{Secret, "shop", fmt.Sprint(pick(r, "s-", "s-", "s-", "s-", "t-"), r.Intn(400))}
			change := Change{Version: uint64(step), Order: uint64(step + 1), Seen: at(step).Time}
			if r.Intn(400) < most {
				s := &Source{SourceKey: key, Change: change, SourceMarks: SourceMarks{Ignored: r.Intn(10) == 0}, Keys: make([]KeyDigest, r.Intn(3)),
					content: Digest{byte(r.Intn(256)), 15: byte(r.Intn(256))}, LastChanged: at(r.Intn(1000))}
				if before := n.sources[key]; before != nil && r.Intn(3) == 0 { // only its metadata changes
					s.Change, s.LastChanged = before.Change, before.LastChanged
				}
				g.SetSource(s)
				n.setSource(s)
			} else {
				g.DeleteSource(key, change)
				n.deleteSource(key, change)
			}
			if r.Intn(20) != 0 { // otherwise, all cached results grow or shrink in the meantime
				continue
			}
			apart := []string{"s-1", "s-2", "t-1", "s-100", "s-1"}
			with := []*Source{{SourceKey: key, Change: change, content: Digest{1}}, {SourceKey: SourceKey{ConfigMap, "shop", "s-1"}}, {SourceKey: SourceKey{Secret, "other", "s-1"}}}
			for name, graph := range map[string]*Graph{"": g, "with others": g.With(with)} {
				want := n
				if name != "" {
					want = newNaive()
					for _, s := range n.sources {
						want.setSource(s)
					}
					want.setSource(with[0])
				}
				if diff := cmp.Diff(want.matched("shop", glob, exclude, apart), describeMatched(graph.Matched("shop", glob, exclude, apart))); diff != "" {
					t.Fatalf("step %d of %d %s (-want +got):\n%s", step, most, name, diff)
				}
			}
		}
	}
}

// EachGone names the latest deletions, without sources that were ignored, excluded or set apart.
func TestMatched_EachGone(t *testing.T) {
	glob := Pattern{Secret, "feature-*"}
	exclude := []Pattern{{Secret, "feature-x*"}}
	g := NewGraph()
	patterns := Patterns{[]Pattern{glob}, exclude}
	g.SetWorkload(&Workload{WorkloadKey: WorkloadKey{Deployment, "shop", "web"}}, patterns)
	g.SetWorkload(&Workload{WorkloadKey: WorkloadKey{Deployment, "other", "web"}}, patterns)
	remove := func(s *Source, version uint64) {
		g.SetSource(s)
		g.DeleteSource(s.SourceKey, Change{Version: version, Order: version})
	}
	of := func(kind SourceKind, namespace, name string) *Source {
		return &Source{SourceKey: SourceKey{kind, namespace, name}}
	}
	gone := func() (all []string) {
		g.Matched("shop", glob, exclude, []string{"feature-own"}).EachGone(func(name string, change Change) bool {
			all = append(all, fmt.Sprint(name, "@", change.Version))
			return true
		})
		return all
	}
	expect := func(what string, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, gone()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	expect("no deletion")
	remove(of(Secret, "shop", "feature-1"), 10)
	remove(of(Secret, "shop", "feature-2"), 20)
	remove(of(ConfigMap, "shop", "feature-3"), 30)
	remove(of(Secret, "other", "feature-4"), 40)
	remove(of(Secret, "shop", "db"), 50)
	remove(of(Secret, "shop", "feature-x1"), 60)
	remove(of(Secret, "shop", "feature-own"), 70)
	ignored := of(Secret, "shop", "feature-5")
	ignored.Ignored = true
	remove(ignored, 80)
	expect("two matching sources were deleted", "feature-2@20", "feature-1@10")
	g.SetSource(of(Secret, "shop", "feature-2"))
	expect("one of the deleted sources exists again", "feature-2@20", "feature-1@10")
	for i := range uint64(3 * maxGoneMembers) {
		remove(of(Secret, "shop", fmt.Sprint("feature-lock-", i)), 100+i)
	}
	all := gone()
	if len(all) != maxGoneMembers+1 || all[0] != "feature-lock-95@195" || !slices.Contains(all, "@163") {
		t.Errorf("after many deletions: %q", all)
	}
	g.DeleteWorkload(WorkloadKey{Deployment, "shop", "web"})
	expect("no workload has the glob")
}

// A glob that replaces others knows the deletions of sources that the others matched, the latest by name.
func TestMatched_EachGoneOfAnotherGlob(t *testing.T) {
	g := NewGraph()
	key := WorkloadKey{Deployment, "shop", "web"}
	use := func(globs ...string) {
		var p Patterns
		for _, glob := range globs {
			p.Sources = append(p.Sources, Pattern{Secret, glob})
		}
		g.SetWorkload(&Workload{WorkloadKey: key}, p)
	}
	use("a*", "b*", "by-name")
	for i := range uint64(2 * maxGoneMembers) {
		for j, name := range []string{fmt.Sprint("a", i), fmt.Sprint("b", i)} {
			s := &Source{SourceKey: SourceKey{Secret, "shop", name}}
			g.SetSource(s)
			g.DeleteSource(s.SourceKey, Change{Version: 2*i + uint64(j) + 1, Order: 2*i + uint64(j) + 1})
		}
	}
	named := &Source{SourceKey: SourceKey{Secret, "shop", "by-name"}}
	g.SetSource(named)
	g.DeleteSource(named.SourceKey, Change{Version: 1000, Order: 1000})
	use("*")
	var got []string
	g.Matched("shop", Pattern{Secret, "*"}, nil, nil).EachGone(func(name string, change Change) bool {
		got = append(got, fmt.Sprint(name, "@", change.Version))
		return true
	})
	if len(got) != maxGoneMembers+1 || got[0] != "by-name@1000" || got[1] != "b63@128" || got[2] != "a63@127" || got[maxGoneMembers] != "@97" {
		t.Errorf("%q", got)
	}
}

// Sums of digests do not depend on the order, and digests can be subtracted again.
func TestSum(t *testing.T) {
	parts := []sum{{1, ^uint64(0)}, {^uint64(0), 1}, {0, ^uint64(0)}, {7, 9}, {^uint64(0), ^uint64(0)}}
	var a, b sum
	for i := range parts {
		a.add(parts[i])
		b.add(parts[len(parts)-1-i])
	}
	if a != b {
		t.Errorf("sums in different orders: %v and %v", a, b)
	}
	for _, p := range parts {
		a.subtract(p)
	}
	if a != (sum{}) {
		t.Errorf("after subtracting all digests, the sum = %v", a)
	}
}

// The sum of ignored names identifies them: other names have another sum.
func TestSumOfName(t *testing.T) {
	seen := map[sum]string{{}: "nothing"}
	for i := range 100 {
		var s sum
		for j := range 3 {
			s.add(sumOfName(fmt.Sprint("name-", i+j*j)))
		}
		if other, found := seen[s]; found {
			t.Errorf("names from %d on have the same sum as %s", i, other)
		}
		seen[s] = fmt.Sprintf("names from %d on", i)
	}
}

// Sources that a workload sets apart do not count towards the 256 that changed last, and the sources are in order,
// however many there are.
func TestMatched_EachRecentOfMany(t *testing.T) {
	const n = 5000
	g := NewGraph()
	for i := range n {
		order := uint64(i * 7919 % n)
		g.SetSource(&Source{SourceKey: SourceKey{Secret, "shop", fmt.Sprint("s-", order)}, Change: Change{Order: order},
			LastChanged: metav1.Unix(int64(order), 0)})
	}
	var apart []string
	for i := range MaxSources {
		apart = append(apart, fmt.Sprint("s-", n-1-i))
	}
	m := g.Matched("shop", Pattern{Secret, "s-*"}, nil, apart)
	if got, want := m.LastChanged().Unix(), int64(n-1-MaxSources); got != want {
		t.Errorf("last change of the matched sources = %d, want %d", got, want)
	}
	var got, want []string
	for i := range 256 {
		want = append(want, fmt.Sprint("s-", n-1-MaxSources-i))
	}
	complete := m.EachRecent(func(s *Source) bool {
		got = append(got, s.Name)
		return true
	})
	if diff := cmp.Diff(want, got); diff != "" || complete {
		t.Errorf("EachRecent = %v, sources (-want +got):\n%s", complete, diff)
	}
	visited := 0
	if complete := m.EachRecent(func(*Source) bool { visited++; return visited < 40 }); !complete || visited != 40 {
		t.Errorf("EachRecent called %d times = %v, want 40 times and true", visited, complete)
	}
}
