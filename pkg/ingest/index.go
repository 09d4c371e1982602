package ingest

import (
	"fmt"
	"strconv"
	"sync"

	"github.com/configdep/configdep/pkg/dependency"
)

// Sink is told of every change of the graph, in order. Its methods are called while the
// index is locked: they may read the graph, must not keep it, and must not block.
type Sink interface {
	// Synced is called once, when the graph equals the cluster for the first time.
	Synced(graph *dependency.Graph, revision uint64)
	// Changed is called after each change that concerns workloads: those that are in the
	// graph, and those that have just gone from it.
	Changed(graph *dependency.Graph, revision uint64, workloads []dependency.WorkloadKey)
	// Progressed is called when the revision has grown without such a change.
	Progressed(revision uint64)
}

// Index holds the dependency graph of the cluster. Its methods are safe for concurrent use.
type Index struct {
	sink Sink

	mu       sync.RWMutex
	graph    *dependency.Graph
	waiting  map[string]bool // the streams whose first list has not been applied
	revision uint64          // the highest resourceVersion that was applied
}

// NewIndex returns an empty index that is synced when each of the named streams is.
func NewIndex(sink Sink, streams []string) *Index {
	x := &Index{sink: sink, graph: dependency.NewGraph(), waiting: map[string]bool{}}
	for _, s := range streams {
		x.waiting[s] = true
	}
	return x
}

// Synced returns nil once the graph equals the cluster, else an error that names what is
// still awaited.
func (x *Index) Synced() error {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if len(x.waiting) == 0 {
		return nil
	}
	return fmt.Errorf("waiting for the first list of %s", joinSorted(x.waiting))
}

// Read calls f with the graph, which it must neither change nor keep.
func (x *Index) Read(f func(*dependency.Graph)) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	f(x.graph)
}

// set applies one object that was added or changed.
func (x *Index) set(o *object) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.observe(o.ResourceVersion)
	x.tell(x.put(o))
}

// remove applies the deletion of one object.
func (x *Index) remove(stream *stream, o *object) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.observe(o.ResourceVersion)
	x.tell(stream.drop(x.graph, o.Namespace, o.Name))
}

// replace applies a list: what it does not hold is gone.
func (x *Index) replace(stream *stream, objects []any, version string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.observe(version)

	gone := stream.names(x.graph)
	var touched []dependency.WorkloadKey
	for _, o := range objects {
		o := o.(*object)
		if o.kept() {
			delete(gone, name{o.Namespace, o.Name})
		}
		touched = append(touched, x.put(o)...)
	}
	for n := range gone {
		touched = append(touched, stream.drop(x.graph, n.namespace, n.name)...)
	}

	if !x.waiting[stream.name] {
		x.tell(touched)
		return
	}
	delete(x.waiting, stream.name)
	if len(x.waiting) == 0 {
		x.sink.Synced(x.graph, x.revision)
	}
}

// progress applies a bookmark.
func (x *Index) progress(version string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.observe(version)
	x.tell(nil)
}

// put brings what remains of an object into the graph and returns the workloads that it
// concerns.
func (x *Index) put(o *object) []dependency.WorkloadKey {
	switch {
	case o.workload != nil:
		x.graph.SetWorkload(o.workload)
		return []dependency.WorkloadKey{o.workload.WorkloadKey}
	case o.source != nil:
		x.graph.SetSource(o.source)
		return users(x.graph, o.source.SourceKey)
	case o.dropped != (dependency.WorkloadKey{}):
		// A workload that was shown and now has a controller is shown no longer.
		return dropWorkload(x.graph, o.dropped)
	}
	return nil
}

// tell passes a change on. Before the first sync nobody is told: the sink would render
// every workload once for each of its sources.
func (x *Index) tell(touched []dependency.WorkloadKey) {
	switch {
	case len(x.waiting) > 0:
	case len(touched) > 0:
		x.sink.Changed(x.graph, x.revision, touched)
	default:
		x.sink.Progressed(x.revision)
	}
}

// observe notes the version of what is about to be applied.
func (x *Index) observe(version string) {
	if v, err := strconv.ParseUint(version, 10, 64); err == nil {
		x.revision = max(x.revision, v)
	}
}

func users(g *dependency.Graph, key dependency.SourceKey) []dependency.WorkloadKey {
	workloads := g.Users(key)
	if len(workloads) == 0 {
		return nil
	}
	keys := make([]dependency.WorkloadKey, len(workloads))
	for i, w := range workloads {
		keys[i] = w.WorkloadKey
	}
	return keys
}

func dropWorkload(g *dependency.Graph, key dependency.WorkloadKey) []dependency.WorkloadKey {
	if g.Workload(key) == nil {
		return nil
	}
	g.DeleteWorkload(key)
	return []dependency.WorkloadKey{key}
}
