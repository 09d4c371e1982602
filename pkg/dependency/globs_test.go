package dependency

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

// naive is a graph that remembers everything and looks through all of it.
type naive struct {
	workloads  map[WorkloadKey]*Workload
	patterns   map[WorkloadKey][]Pattern
	sources    map[SourceKey]*Source
	gone       map[SourceKey]Change // deletions that have to be known
	namespaces map[string]map[string]string
}

func (n *naive) users(key SourceKey) []WorkloadKey {
	var out []WorkloadKey
	for k, w := range n.workloads {
		refers := slices.ContainsFunc(w.References, func(r Reference) bool { return r.Kind == key.Kind && r.Name == key.Name })
		names := slices.ContainsFunc(n.patterns[k], func(p Pattern) bool { return p.Matches(key.Kind, key.Name) })
		if w.Namespace == key.Namespace && (refers || names) {
			out = append(out, k)
		}
	}
	return sorted(out)
}

func (n *naive) references(w *Workload) []string {
	ids := map[string]bool{}
	for _, r := range w.References {
		ids[string(r.Kind)+"/"+r.Name] = true
	}
	for _, p := range n.patterns[w.WorkloadKey] {
		if !p.Glob() {
			ids[string(p.Kind)+"/"+p.Name] = true
		}
		for key := range n.sources {
			if key.Namespace == w.Namespace && p.Matches(key.Kind, key.Name) {
				ids[string(key.Kind)+"/"+key.Name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(ids))
}

func sorted(keys []WorkloadKey) []WorkloadKey {
	slices.SortFunc(keys, func(a, b WorkloadKey) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return keys
}

// TestGraphAnswersLikeANaiveOne adds, changes and removes workloads with references and
// patterns, sources and annotations of namespaces, at random.
func TestGraphAnswersLikeANaiveOne(t *testing.T) {
	kinds := []SourceKind{ConfigMap, Secret}
	names := []string{"a", "a-1", "a-2", "b", "b-1"}
	globs := []string{"a", "b", "missing", "a-*", "*", "?-1", "[ab]"}
	spaces := []string{"one", "two"}
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 6))
		kind := func() SourceKind { return kinds[r.IntN(2)] }
		space := func() string { return spaces[r.IntN(2)] }
		source := func() SourceKey { return SourceKey{kind(), space(), names[r.IntN(len(names))]} }
		workload := func() WorkloadKey {
			return WorkloadKey{[]WorkloadKind{Deployment, DaemonSet}[r.IntN(2)], space(), fmt.Sprint("w", r.IntN(3))}
		}
		g := NewGraph()
		n := &naive{
			map[WorkloadKey]*Workload{}, map[WorkloadKey][]Pattern{}, map[SourceKey]*Source{}, map[SourceKey]Change{}, map[string]map[string]string{},
		}
		// forget drops the deletions that a graph need not know any more once a workload that
		// refers to them has been set again or has gone.
		forget := func(w *Workload) {
			if w == nil {
				return
			}
			for i := range w.References {
				delete(n.gone, w.sourceKey(i))
			}
		}
		for step := range 200 {
			version := uint64(step + 1)
			switch r.IntN(10) {
			case 0, 1, 2:
				w := &Workload{WorkloadKey: workload()}
				for _, k := range kinds {
					for _, name := range names {
						if r.IntN(4) == 0 {
							w.References = append(w.References, Reference{Kind: k, Name: name, Uses: []Use{{Type: EnvFrom, Container: "app"}}})
						}
					}
				}
				var patterns []Pattern
				for range r.IntN(3) {
					patterns = append(patterns, Pattern{kind(), globs[r.IntN(len(globs))]})
				}
				g.SetWorkload(w, patterns)
				forget(n.workloads[w.WorkloadKey])
				n.workloads[w.WorkloadKey], n.patterns[w.WorkloadKey] = w, patterns
			case 3:
				key := workload()
				g.DeleteWorkload(key)
				forget(n.workloads[key])
				delete(n.workloads, key)
				delete(n.patterns, key)
			case 4, 5, 6:
				s := &Source{SourceKey: source(), Change: Change{Version: version}}
				g.SetSource(s)
				n.sources[s.SourceKey] = s
				delete(n.gone, s.SourceKey)
			case 7, 8:
				key := source()
				g.DeleteSource(key, Change{Version: version})
				if n.sources[key] != nil && len(n.users(key)) > 0 {
					n.gone[key] = Change{Version: version}
				}
				delete(n.sources, key)
			case 9:
				name := space()
				var a map[string]string
				if r.IntN(2) == 0 {
					a = map[string]string{"configdep.io/reload": []string{"auto", "off"}[r.IntN(2)]}
				}
				if changed := g.SetNamespace(name, a); changed == maps.Equal(n.namespaces[name], a) {
					t.Fatalf("seed %d: namespace %s from %v to %v: changed is %v", seed, name, n.namespaces[name], a, changed)
				}
				n.namespaces[name] = a
			}
			compare(t, g, n, fmt.Sprintf("seed %d, step %d", seed, step), kinds, append(names, "missing"), spaces)
			if t.Failed() {
				return
			}
		}
		// When all have gone, nothing is kept of them.
		for key := range n.workloads {
			g.DeleteWorkload(key)
		}
		for key := range n.sources {
			g.DeleteSource(key, Change{Version: 1000})
		}
		if len(g.users)+len(g.globs)+len(g.sources)+len(g.workloads) > 0 {
			t.Fatalf("seed %d: what is left: %v, %v, %v, %v", seed, g.users, g.globs, g.sources, g.workloads)
		}
	}
}

func compare(t *testing.T, g *Graph, n *naive, at string, kinds []SourceKind, names, spaces []string) {
	t.Helper()
	if workloads, sources := g.Size(); workloads != len(n.workloads) || sources != len(n.sources) {
		t.Errorf("%s: the size is %d, %d, want %d, %d", at, workloads, sources, len(n.workloads), len(n.sources))
	}
	for _, space := range spaces {
		if want, got := n.namespaces[space], g.Namespace(space); !maps.Equal(want, got) {
			t.Errorf("%s: namespace %s has %v, want %v", at, space, got, want)
		}
		lookup := g.Sources(space)
		for _, kind := range kinds {
			for _, name := range names {
				key := SourceKey{kind, space, name}
				if g.Source(key) != n.sources[key] || lookup(kind, name) != n.sources[key] {
					t.Errorf("%s: %v is %v, %v, want %v", at, key, g.Source(key), lookup(kind, name), n.sources[key])
				}
				if want, got := n.users(key), sorted(g.Users(key)); !slices.Equal(want, got) {
					t.Errorf("%s: the users of %v (-want +got):\n%s", at, key, gocmp.Diff(want, got))
				}
				want, known := n.gone[key]
				if s := n.sources[key]; s != nil {
					want, known = s.Change, true
				}
				if got := g.LastChange(key); known && got != want {
					t.Errorf("%s: %v last changed %v, want %v", at, key, got, want)
				}
			}
		}
	}
	var all []WorkloadKey
	g.EachWorkload(func(w *Workload) {
		all = append(all, w.WorkloadKey)
		var got []string
		for _, r := range g.References(w, n.patterns[w.WorkloadKey]) {
			got = append(got, string(r.Kind)+"/"+r.Name)
			if inTemplate := slices.ContainsFunc(w.References, func(x Reference) bool { return x.Kind == r.Kind && x.Name == r.Name }); !inTemplate {
				if len(r.Uses) != 1 || r.Uses[0].Type != Annotation || !r.Uses[0].Optional {
					t.Errorf("%s: %s is named by a pattern, and has the uses %v", at, r.Name, r.Uses)
				}
			}
		}
		if want := n.references(w); !slices.Equal(want, got) {
			t.Errorf("%s: the references of %v (-want +got):\n%s", at, w.WorkloadKey, gocmp.Diff(want, got))
		}
	})
	if want := sorted(slices.Collect(maps.Keys(n.workloads))); !slices.Equal(want, sorted(all)) {
		t.Errorf("%s: the workloads (-want +got):\n%s", at, gocmp.Diff(want, all))
	}
}

// TestPatternsChangeWithTheNamespace: they come from annotations, and a workload is set
// again when those of its namespace change.
func TestPatternsChangeWithTheNamespace(t *testing.T) {
	g := NewGraph()
	w := &Workload{WorkloadKey: WorkloadKey{Deployment, "shop", "web"}}
	key := SourceKey{Secret, "shop", "feature-1"}
	for _, patterns := range [][]Pattern{nil, {{Secret, "feature-*"}}, {{Secret, "feature-1"}}, {{ConfigMap, "feature-*"}}, nil} {
		g.SetWorkload(w, patterns)
		want := len(patterns) > 0 && patterns[0].Kind == Secret
		if got := len(g.Users(key)) == 1; got != want {
			t.Errorf("with %v it is a user: %v, want %v", patterns, got, want)
		}
	}
	if other := (SourceKey{Secret, "other", "feature-1"}); len(g.Users(other)) > 0 {
		t.Error("it uses sources of another namespace")
	}
}
