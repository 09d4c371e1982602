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
	"time"

	"github.com/google/go-cmp/cmp"
)

// naive is a graph without indexes.
type naive struct {
	workloads map[WorkloadKey]*Workload
	patterns  map[WorkloadKey]Patterns
	sources   map[SourceKey]*Source
}

func newNaive() *naive {
	return &naive{map[WorkloadKey]*Workload{}, map[WorkloadKey]Patterns{}, map[SourceKey]*Source{}}
}

func (n *naive) setWorkload(w *Workload, patterns Patterns) {
	n.workloads[w.WorkloadKey], n.patterns[w.WorkloadKey] = w, patterns
}

func (n *naive) deleteWorkload(key WorkloadKey) {
	delete(n.workloads, key)
	delete(n.patterns, key)
}

func (n *naive) users(key SourceKey) []string { return n.usersBy(key, true) }

// usersBy returns the workloads that use a source by name or, with globs, by glob as well.
func (n *naive) usersBy(key SourceKey, globs bool) (out []string) {
	for _, w := range n.workloads {
		if w.Namespace != key.Namespace {
			continue
		}
		referred := slices.ContainsFunc(w.References, func(r Reference) bool { return r.Kind == key.Kind && r.Name == key.Name })
		p := n.patterns[w.WorkloadKey]
		excluded := slices.ContainsFunc(p.Exclude, func(p Pattern) bool { return p.Matches(key.Kind, key.Name) })
		named := slices.ContainsFunc(p.Sources, func(p Pattern) bool {
			return p.Matches(key.Kind, key.Name) && (!p.Glob() || globs && !excluded)
		})
		if referred || named {
			out = append(out, fmt.Sprint(w.WorkloadKey))
		}
	}
	slices.Sort(out)
	return out
}

// references returns the sources to which a workload refers by name, as KIND/NAME.
func (n *naive) references(w *Workload, patterns []Pattern) []string {
	all := map[string]bool{}
	for _, r := range w.References {
		all[string(r.Kind)+"/"+r.Name] = true
	}
	for _, p := range patterns {
		if !strings.Contains(p.Name, "*") {
			all[string(p.Kind)+"/"+p.Name] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// matched returns what Matched returns, from a search through all sources.
func (n *naive) matched(namespace string, glob Pattern, exclude []Pattern) (out description) {
	for key, s := range n.sources {
		excluded := slices.ContainsFunc(exclude, func(p Pattern) bool { return p.Matches(key.Kind, key.Name) })
		if key.Namespace != namespace || !glob.Matches(key.Kind, key.Name) || excluded || s.Ignored {
			continue
		}
		out.Names = append(out.Names, key.Name)
		if s.LastChangeTime.After(out.LastChangeTime) {
			out.LastChangeTime = s.LastChangeTime.Time
		}
	}
	out.Count = len(out.Names)
	slices.Sort(out.Names)
	return out
}

// description is everything that Matched returns.
type description struct {
	Count          int
	Names          []string
	LastChangeTime time.Time
}

func describeMatched(m *Matched) (out description) {
	out = description{Count: m.Count, LastChangeTime: m.LastChangeTime().Time}
	out.Names = append(out.Names, m.Names()...)
	return out
}

// identity distinguishes values of a workload with the same key.
func identity(w *Workload) string { return fmt.Sprintf("%v %p", w.WorkloadKey, w) }

func identities(workloads []*Workload) (out []string) {
	for _, w := range workloads {
		out = append(out, identity(w))
	}
	slices.Sort(out)
	return out
}

func sortedKeys(keys []WorkloadKey) (out []string) {
	for _, k := range keys {
		out = append(out, fmt.Sprint(k))
	}
	slices.Sort(out)
	return out
}

// The users of a source and the references of a workload are always the same as from
// a search through everything.
func TestGraphAfterAnyChanges(t *testing.T) { withSeeds(t, 1, graphAfterAnyChanges) }

func graphAfterAnyChanges(t *testing.T, r *rand.Rand) {
	t.Helper()
	g := NewGraph()
	n := newNaive()
	randomSourceKey := func() SourceKey {
		return SourceKey{pick(r, ConfigMap, Secret), pick(r, "ns1", "ns2"), pick(r, "a", "b", "ab", "c")}
	}
	randomWorkloadKey := func() WorkloadKey {
		return WorkloadKey{pick(r, Deployment, CronJob), pick(r, "ns1", "ns2"), pick(r, "a", "b", "c", "d", "e")}
	}
	somePatterns := func() (out []Pattern) {
		for range r.Intn(8) - 5 {
			out = append(out, Pattern{pick(r, ConfigMap, Secret), pick(r, "a", "ab", "nothing", "a*", "*b", "*")})
		}
		return out
	}
	randomPatterns := func() Patterns { return Patterns{somePatterns(), somePatterns()} }
	var used, byPattern, matched int
	for step := range 10_000 {
		switch r.Intn(6) {
		case 0, 1, 2:
			w := &Workload{WorkloadKey: randomWorkloadKey()}
			for range r.Intn(4) {
				key := randomSourceKey()
				if !slices.ContainsFunc(w.References, func(x Reference) bool { return x.Kind == key.Kind && x.Name == key.Name }) {
					w.References = append(w.References, Reference{Kind: key.Kind, Name: key.Name})
				}
			}
			patterns := randomPatterns()
			g.SetWorkload(w, patterns)
			n.setWorkload(w, patterns)
		case 3:
			key := randomWorkloadKey()
			g.DeleteWorkload(key)
			n.deleteWorkload(key)
		case 4:
			s := &Source{SourceKey: randomSourceKey(), SourceMarks: SourceMarks{Ignored: r.Intn(4) == 0}, Keys: make([]KeyDigest, r.Intn(3)), LastChangeTime: at(r.Intn(100))}
			g.SetSource(s)
			n.sources[s.SourceKey] = s
		case 5:
			key := randomSourceKey()
			g.DeleteSource(key, Arrival{})
			delete(n.sources, key)
		}

		key, w := randomSourceKey(), randomWorkloadKey()
		want := n.users(key)
		used += len(want)
		if diff := cmp.Diff(want, sortedKeys(g.Users(key))); diff != "" {
			t.Fatalf("step %d: users of %v (-want +got):\n%s", step, key, diff)
		}
		if g.Source(key) != n.sources[key] {
			t.Fatalf("step %d: source %v is not the one that was set last", step, key)
		}
		if g.Workload(w) != n.workloads[w] {
			t.Fatalf("step %d: workload %v is not the one that was set last", step, w)
		}
		if w := n.workloads[w]; w != nil {
			patterns := n.patterns[w.WorkloadKey]
			var got []string
			for _, ref := range g.References(w, patterns.Sources) {
				got = append(got, string(ref.Kind)+"/"+ref.Name)
			}
			want := n.references(w, patterns.Sources)
			if diff := cmp.Diff(want, got); diff != "" && len(patterns.Sources) > 0 { // otherwise as the template has them
				t.Fatalf("step %d: references of %v with %v (-want +got):\n%s", step, w.WorkloadKey, patterns, diff)
			}
			byPattern += len(want) - len(w.References)
			for _, p := range patterns.Sources {
				if p.Glob() {
					got, want := g.Matched(w.Namespace, p, patterns.Exclude), n.matched(w.Namespace, p, patterns.Exclude)
					if diff := cmp.Diff(want, describeMatched(got)); diff != "" {
						t.Fatalf("step %d: %v in %s without %v (-want +got):\n%s", step, p, w.Namespace, patterns.Exclude, diff)
					}
					matched += got.Count
				}
			}
		}
	}
	if used == 0 || byPattern == 0 || matched == 0 {
		t.Errorf("sources used %d times, by patterns %d times, by globs %d times; want each to occur often", used, byPattern, matched)
	}

	var all []*Workload
	g.EachWorkload(func(w *Workload) { all = append(all, w) })
	var want []*Workload
	for _, w := range n.workloads {
		want = append(want, w)
	}
	if diff := cmp.Diff(identities(want), identities(all)); diff != "" {
		t.Errorf("all workloads (-want +got):\n%s", diff)
	}
	var sources []string
	g.EachSource(func(s *Source) { sources = append(sources, fmt.Sprintf("%p", s)) })
	var wantSources []string
	for _, s := range n.sources {
		wantSources = append(wantSources, fmt.Sprintf("%p", s))
	}
	slices.Sort(sources)
	slices.Sort(wantSources)
	if diff := cmp.Diff(strings.Join(wantSources, " "), strings.Join(sources, " ")); diff != "" {
		t.Errorf("all sources (-want +got):\n%s", diff)
	}
	if w, s := g.Size(); w != len(n.workloads) || s != len(n.sources) {
		t.Errorf("size %d, %d, want %d, %d", w, s, len(n.workloads), len(n.sources))
	}
}

// A graph releases its memory when everything is deleted.
func TestAGraphThatIsEmptiedHoldsNothing(t *testing.T) {
	g := NewGraph()
	shared := SourceKey{Secret, "ns", "shared"}
	key := func(i int) WorkloadKey { return WorkloadKey{Deployment, "ns", fmt.Sprint(i)} }
	for i := range 10 {
		g.SetWorkload(&Workload{
			WorkloadKey: key(i),
			References:  []Reference{{Kind: Secret, Name: "shared"}, {Kind: ConfigMap, Name: fmt.Sprint(i)}},
		}, Patterns{Sources: []Pattern{{ConfigMap, "feature-*"}, {Secret, fmt.Sprint("by-name-", i)}}})
		g.SetSource(&Source{SourceKey: SourceKey{ConfigMap, "ns", fmt.Sprint("feature-", i)}})
	}
	g.SetSource(&Source{SourceKey: shared})
	g.SetNamespace("ns", map[string]string{"configdep.io/reload": "auto"})
	for i := range 10 {
		g.DeleteSource(SourceKey{ConfigMap, "ns", fmt.Sprint("feature-", i)}, Arrival{})
	}
	g.DeleteSource(shared, Arrival{})
	for i := range 10 {
		g.DeleteWorkload(key(i))
	}
	g.SetNamespace("ns", nil)
	if held := g.users.items.Len() + g.workloads.len() + g.sources.len() + g.globs.len() + g.globUsers.len() + g.extra.len() + g.namespaces.len(); held != 0 {
		t.Errorf("graph after all deletions = %+v", g)
	}
}

// Sources that annotations name without a glob are sorted by kind and name among those that the template uses, and
// pods start without them. The workload itself does not change.
func TestReferencesByPatterns(t *testing.T) {
	g := NewGraph()
	for _, name := range []string{"db", "db-admin", "feature-b", "feature-a"} {
		g.SetSource(&Source{SourceKey: SourceKey{Secret, "ns", name}})
	}
	g.SetSource(&Source{SourceKey: SourceKey{Secret, "elsewhere", "feature-c"}})
	g.SetSource(&Source{SourceKey: SourceKey{ConfigMap, "ns", "feature-d"}})
	w := &Workload{WorkloadKey: WorkloadKey{Deployment, "ns", "web"}, References: []Reference{
		{Kind: Secret, Name: "db", Uses: []Use{{Type: EnvFrom, Container: "app"}}},
	}}
	named := []Use{{Type: Annotation, Optional: true}}
	want := []Reference{
		{Kind: ConfigMap, Name: "absent", Uses: named},
		{Kind: Secret, Name: "db", Uses: []Use{{Type: EnvFrom, Container: "app"}}},
		{Kind: Secret, Name: "feature-a", Uses: named},
	}
	patterns := []Pattern{{Secret, "feature-*"}, {Secret, "db"}, {ConfigMap, "absent"}, {Secret, "feature-a"}, {Secret, "nothing-*"}}
	if diff := cmp.Diff(want, g.References(w, patterns)); diff != "" {
		t.Errorf("references (-want +got):\n%s", diff)
	}
	if len(w.References) != 1 {
		t.Errorf("references of the workload changed: %v", w.References)
	}
}

// A namespace is kept while it has annotations of configdep, and SetNamespace reports when they change.
func TestAnnotationsOfNamespaces(t *testing.T) {
	g := NewGraph()
	auto, off := map[string]string{"configdep.io/reload": "auto"}, map[string]string{"configdep.io/reload": "off"}
	noted := func() (out []string) {
		g.EachNamespace(func(n string) { out = append(out, n) })
		return out
	}
	for i, step := range []struct {
		annotations map[string]string
		changed     bool
	}{{nil, false}, {auto, true}, {maps.Clone(auto), false}, {off, true}, {nil, true}, {map[string]string{}, false}} {
		if changed := g.SetNamespace("ns", step.annotations); changed != step.changed {
			t.Errorf("step %d: changed: %v", i, changed)
		}
		if !maps.Equal(g.Namespace("ns"), step.annotations) || (len(noted()) > 0) != (len(step.annotations) > 0) {
			t.Errorf("step %d: annotations = %v, namespaces = %v", i, g.Namespace("ns"), noted())
		}
	}
}

// What counts for namespaces that have not been read is not kept for each of them, and a namespace without any annotation
// is kept if it differs from that.
func TestAnnotationsOfUnreadNamespaces(t *testing.T) {
	g := NewGraph()
	unselected, auto := map[string]string{"unselected": ""}, map[string]string{"configdep.io/reload": "auto"}
	g.SetUnreadNamespace(unselected)
	for i, step := range []struct {
		annotations   map[string]string
		terminating   bool
		changed, kept bool
	}{
		{unselected, false, false, false}, {nil, false, true, true}, {nil, false, false, true}, {auto, false, true, true},
		{unselected, true, true, true}, {unselected, false, true, false},
	} {
		annotated, ending := g.SetNamespace("ns", step.annotations), g.SetTerminating("ns", step.terminating)
		if changed := annotated || ending; changed != step.changed {
			t.Errorf("step %d: changed: %t", i, changed)
		}
		kept := false
		g.EachNamespace(func(string) { kept = true })
		for _, g := range []*Graph{g, g.Snapshot()} {
			if !maps.Equal(g.Namespace("ns"), step.annotations) || !maps.Equal(g.Namespace("other"), unselected) {
				t.Errorf("step %d: annotations = %v, those of another namespace %v", i, g.Namespace("ns"), g.Namespace("other"))
			}
		}
		if kept != step.kept {
			t.Errorf("step %d: kept: %t", i, kept)
		}
	}
}
