package dependency

import "slices"

// Graph holds the workloads and sources of a cluster and knows in both directions who
// uses whom, so that a change of a source costs one look-up. It is not safe for
// concurrent use; the values in it are immutable.
type Graph struct {
	workloads map[WorkloadKey]*Workload
	sources   map[SourceKey]*Source
	users     map[SourceKey][]*Workload // in no order
}

// NewGraph returns an empty graph.
func NewGraph() *Graph {
	return &Graph{
		workloads: map[WorkloadKey]*Workload{},
		sources:   map[SourceKey]*Source{},
		users:     map[SourceKey][]*Workload{},
	}
}

// Workload returns a workload, or nil.
func (g *Graph) Workload(key WorkloadKey) *Workload { return g.workloads[key] }

// Source returns a source, or nil.
func (g *Graph) Source(key SourceKey) *Source { return g.sources[key] }

// Sources returns a look-up of the sources of one namespace.
func (g *Graph) Sources(namespace string) func(SourceKind, string) *Source {
	return func(kind SourceKind, name string) *Source {
		return g.sources[SourceKey{kind, namespace, name}]
	}
}

// Users returns the workloads that refer to a source, which need not exist. The caller
// must not change the slice, nor keep it beyond the next change of the graph.
func (g *Graph) Users(key SourceKey) []*Workload { return g.users[key] }

// Size returns the number of workloads and of sources.
func (g *Graph) Size() (workloads, sources int) { return len(g.workloads), len(g.sources) }

// EachWorkload calls f for every workload, in no order.
func (g *Graph) EachWorkload(f func(*Workload)) {
	for _, w := range g.workloads {
		f(w)
	}
}

// EachSource calls f for every source, in no order.
func (g *Graph) EachSource(f func(*Source)) {
	for _, s := range g.sources {
		f(s)
	}
}

// SetWorkload adds a workload or puts it in the place of one with the same key.
func (g *Graph) SetWorkload(w *Workload) {
	g.DeleteWorkload(w.WorkloadKey)
	g.workloads[w.WorkloadKey] = w
	for i := range w.References {
		key := w.sourceKey(i)
		g.users[key] = append(g.users[key], w)
	}
}

// DeleteWorkload removes a workload, if it is there.
func (g *Graph) DeleteWorkload(key WorkloadKey) {
	w := g.workloads[key]
	if w == nil {
		return
	}
	delete(g.workloads, key)
	for i := range w.References {
		source := w.sourceKey(i)
		users := g.users[source]
		if len(users) == 1 {
			delete(g.users, source)
			continue
		}
		at := slices.Index(users, w)
		users[at] = users[len(users)-1]
		users[len(users)-1] = nil
		g.users[source] = users[:len(users)-1]
	}
}

// SetSource adds a source or puts it in the place of one with the same key.
func (g *Graph) SetSource(s *Source) { g.sources[s.SourceKey] = s }

// DeleteSource removes a source, if it is there.
func (g *Graph) DeleteSource(key SourceKey) { delete(g.sources, key) }

func (w *Workload) sourceKey(i int) SourceKey {
	return SourceKey{w.References[i].Kind, w.Namespace, w.References[i].Name}
}
