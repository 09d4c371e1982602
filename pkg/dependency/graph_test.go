package dependency

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// naive is a graph without an index.
type naive struct {
	workloads map[WorkloadKey]*Workload
	sources   map[SourceKey]*Source
}

func (n *naive) users(key SourceKey) (out []string) {
	for _, w := range n.workloads {
		if w.Namespace != key.Namespace {
			continue
		}
		if slices.ContainsFunc(w.References, func(r Reference) bool { return r.Kind == key.Kind && r.Name == key.Name }) {
			out = append(out, identity(w))
		}
	}
	slices.Sort(out)
	return out
}

// identity tells one value of a workload from another with the same key.
func identity(w *Workload) string { return fmt.Sprintf("%v %p", w.WorkloadKey, w) }

func identities(workloads []*Workload) (out []string) {
	for _, w := range workloads {
		out = append(out, identity(w))
	}
	slices.Sort(out)
	return out
}

// Who uses a source is always what looking at every workload would say.
func TestUsersOfASourceAfterAnyChanges(t *testing.T) {
	r := random(t)
	g := NewGraph()
	n := &naive{map[WorkloadKey]*Workload{}, map[SourceKey]*Source{}}
	randomSourceKey := func() SourceKey {
		return SourceKey{pick(r, ConfigMap, Secret), pick(r, "ns1", "ns2"), pick(r, "a", "b", "c", "d")}
	}
	randomWorkloadKey := func() WorkloadKey {
		return WorkloadKey{pick(r, Deployment, CronJob), pick(r, "ns1", "ns2"), pick(r, "a", "b", "c", "d", "e")}
	}
	used := 0
	for step := range 5_000 {
		switch r.Intn(6) {
		case 0, 1, 2:
			w := &Workload{WorkloadKey: randomWorkloadKey()}
			for range r.Intn(5) {
				key := randomSourceKey()
				if !slices.ContainsFunc(w.References, func(x Reference) bool { return x.Kind == key.Kind && x.Name == key.Name }) {
					w.References = append(w.References, Reference{Kind: key.Kind, Name: key.Name})
				}
			}
			g.SetWorkload(w)
			n.workloads[w.WorkloadKey] = w
		case 3:
			key := randomWorkloadKey()
			g.DeleteWorkload(key)
			delete(n.workloads, key)
		case 4:
			s := &Source{SourceKey: randomSourceKey()}
			g.SetSource(s)
			n.sources[s.SourceKey] = s
		case 5:
			key := randomSourceKey()
			g.DeleteSource(key)
			delete(n.sources, key)
		}

		key, w := randomSourceKey(), randomWorkloadKey()
		want := n.users(key)
		used += len(want)
		if diff := cmp.Diff(want, identities(g.Users(key))); diff != "" {
			t.Fatalf("step %d: users of %v (-want +got):\n%s", step, key, diff)
		}
		if g.Source(key) != n.sources[key] || g.Sources(key.Namespace)(key.Kind, key.Name) != n.sources[key] {
			t.Fatalf("step %d: source %v is not the one that was set", step, key)
		}
		if g.Workload(w) != n.workloads[w] {
			t.Fatalf("step %d: workload %v is not the one that was set", step, w)
		}
	}
	if used == 0 {
		t.Error("no source was ever used")
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

// A cluster that shrinks gives its memory back.
func TestAGraphThatIsEmptiedHoldsNothing(t *testing.T) {
	g := NewGraph()
	for i := range 10 {
		g.SetWorkload(&Workload{
			WorkloadKey: WorkloadKey{Deployment, "ns", fmt.Sprint(i)},
			References:  []Reference{{Kind: Secret, Name: "shared"}, {Kind: ConfigMap, Name: fmt.Sprint(i)}},
		})
	}
	for i := range 10 {
		g.DeleteWorkload(WorkloadKey{Deployment, "ns", fmt.Sprint(i)})
	}
	if len(g.users) != 0 || len(g.workloads) != 0 {
		t.Errorf("there are still %d workloads, and users of %d sources", len(g.workloads), len(g.users))
	}
}
