package ingest

import (
	"fmt"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
)

// Sink is told of every change of the graph, in order. Its methods are called while the
// index is locked: they may read the graph, must not keep it, and must not block.
type Sink interface {
	// Synced is called when the graph equals the cluster for the first time, and each time that
	// everything has been read again: because the key of the digests was replaced, or because
	// revisions have gone back, as after a restore of etcd (then at.Restored has grown). In
	// between nothing is told.
	Synced(graph *dependency.Graph, at dependency.Progress)
	// Changed is called after each change that concerns workloads: those that are in the
	// graph, and those that have just gone from it. A workload is named whenever something
	// that it depends on was written, even if nothing in it has changed by that.
	Changed(graph *dependency.Graph, at dependency.Progress, workloads []dependency.WorkloadKey)
	// Progressed is called when there is progress without such a change.
	Progressed(at dependency.Progress)
}

// Index holds the dependency graph of the cluster. Its methods are safe for concurrent use.
type Index struct {
	sinks     []Sink
	clock     clock.PassiveClock
	defaults  policy.Defaults
	within    []string // the namespaces that are read; empty: all
	resources []string // that are awaited, by the names of their streams

	mu       sync.RWMutex
	graph    *dependency.Graph
	waiting  map[string]bool                  // the streams whose first list has not been applied
	seen     map[string]seen                  // by stream
	progress dependency.Progress              // but for the watermark
	told     dependency.Progress              // what the sinks were told last
	several  bool                             // several revision counters were found since the last Reset
	regress  bool                             // revisions have gone back since the last Reset
	unsure   sets.Set[dependency.WorkloadKey] // that changed before that was known
	restart  func()                           // ends the reading of everything, which then begins again
	unprobed map[string]bool                  // the streams whose current revision has not been asked for
	order    uint64                           // how many things have been read; see dependency.Moment
	digester *dependency.Digester             // with which content is read
	rekeyed  *rekeyed                         // nil: what is known was read with that digester
}

// seen tells up to which revision a stream has been applied, and when it last moved.
type seen struct {
	revision uint64
	at       time.Time
}

// NewIndex returns an index that has read nothing.
func NewIndex(c clock.PassiveClock, sinks ...Sink) *Index {
	return newIndex(c, namesOf(streams(nil)), sinks...)
}

func newIndex(c clock.PassiveClock, resources []string, sinks ...Sink) *Index {
	x := &Index{sinks: sinks, clock: c, resources: resources}
	x.Reset()
	return x
}

// regressed is called when revisions have gone back, as after etcd was restored from a backup:
// nothing that is known may be compared with what comes, so that everything is read again.
// The lock is held.
func (x *Index) regressed(resource string, now, before uint64) {
	klog.Background().Error(nil, "The revision of a resource has gone back, as after a restore of etcd: reading everything again",
		"resource", resource, "revision", now, "before", before)
	x.progress.SeveralCounters, x.progress.OneCounter = true, false
	x.progress.Restored++
	x.regress = true
	x.graph.SetSeveralCounters(true)
	if x.restart != nil {
		x.restart()
	}
}

func (x *Index) hasRegressed() bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.regress
}

// SetDefaults sets the policy of workloads without annotations. It is called before Run.
func (x *Index) SetDefaults(d policy.Defaults) { x.defaults = d }

// Within limits the index to some namespaces; none: to all. It is called before Run.
func (x *Index) Within(namespaces []string) {
	x.within, x.resources = namespaces, namesOf(streamsIn(namespaces, nil))
	x.Reset()
}

func namesOf(streams []*stream) []string {
	names := make([]string, len(streams))
	for i, s := range streams {
		names[i] = s.name
	}
	return names
}

// Reset forgets everything. The index is synced when each resource has been read again.
func (x *Index) Reset() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.graph, x.rekeyed = dependency.NewGraph(), nil
	x.waiting, x.unprobed, x.seen = map[string]bool{}, map[string]bool{}, map[string]seen{}
	x.progress.Floor, x.progress.OneCounter, x.several = 0, false, false
	if x.regress { // what comes has nothing to do with what was
		x.progress.Latest, x.regress = 0, false
	}
	x.unsure = sets.New[dependency.WorkloadKey]()
	for _, name := range x.resources {
		x.waiting[name], x.unprobed[name] = true, true
	}
	x.graph.SetSeveralCounters(true) // until it is known that there is one
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

// Read calls f with the graph, which it must neither change nor keep. It returns false,
// without a call, while the graph does not equal the cluster.
func (x *Index) Read(f func(*dependency.Graph)) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if len(x.waiting) > 0 {
		return false
	}
	f(x.graph)
	return true
}

// Size returns the number of workloads and of sources.
func (x *Index) Size() (workloads, sources int) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.graph.Size()
}

// LastProgress returns when each resource last sent an event or a bookmark.
func (x *Index) LastProgress() map[string]time.Time {
	x.mu.RLock()
	defer x.mu.RUnlock()
	out := make(map[string]time.Time, len(x.seen))
	for name, s := range x.seen {
		out[name] = s.at
	}
	return out
}

// Progress tells how much of the cluster has been seen.
func (x *Index) Progress() dependency.Progress {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.now()
}

// set applies one object that was added or changed.
func (x *Index) set(stream *stream, o *object) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.observe(stream, o.ResourceVersion)
	x.tell(x.put(o, x.arrival(true)))
}

// remove applies the deletion of one object.
func (x *Index) remove(stream *stream, o *object) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.observe(stream, o.ResourceVersion)
	x.tell(x.drop(stream, o.Namespace, o.Name, o.ResourceVersion))
}

// batch is how many objects of a first list are applied before others can have the index. Until
// it is synced they have no use for its state between two objects, and streams are independent
// of each other.
const batch = 256

// letOthers releases the lock, which is held, for a moment.
func (x *Index) letOthers() {
	x.mu.Unlock()
	x.mu.Lock()
}

// replace applies a list: what it does not hold is gone. It reports whether this was the last
// of the first lists.
func (x *Index) replace(stream *stream, objects []any, version string) (synced bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if v, err := strconv.ParseUint(version, 10, 64); err == nil && v < x.seen[stream.name].revision {
		x.regressed(stream.name, v, x.seen[stream.name].revision)
	}
	x.observe(stream, version)
	x.progress.Floor = max(x.progress.Floor, x.seen[stream.name].revision)

	first := x.waiting[stream.name]
	gone := stream.names(x.graph)
	touched := sets.New[dependency.WorkloadKey]()
	for i, o := range objects {
		o := o.(*object)
		if o.kept() {
			delete(gone, name{o.Namespace, o.Name})
		}
		again := first && x.rekeyed != nil && o.source != nil // read before, with another key
		if again || !x.holds(o) {
			at := x.arrival(false)
			at.Rekeyed = again
			touched.Insert(x.put(o, at)...)
		}
		if first && i%batch == batch-1 {
			x.letOthers()
		}
	}
	for n := range gone {
		touched.Insert(x.drop(stream, n.namespace, n.name, version)...)
	}
	if !first {
		x.tell(touched.UnsortedList())
		return false
	}
	if len(x.waiting) > 1 {
		delete(x.waiting, stream.name)
		return false
	}
	if x.rekeyed != nil {
		x.translate()
	} else {
		x.order++
		x.graph.SetSince(dependency.Moment{Version: x.progress.Latest, Order: x.order})
	}
	delete(x.waiting, stream.name)
	progress := x.announce()
	for _, s := range x.sinks {
		s.Synced(x.graph, progress)
	}
	return true
}

// holds reports whether the graph has an object in just the version in which it was listed.
func (x *Index) holds(o *object) bool {
	switch {
	case o.workload != nil:
		w := x.graph.Workload(o.workload.WorkloadKey)
		return w != nil && w.UID == o.workload.UID && w.ResourceVersion == o.ResourceVersion
	case o.source != nil:
		s := x.graph.Source(o.source.SourceKey)
		return s != nil && s.UID == o.source.UID && s.ResourceVersion == o.ResourceVersion
	default:
		return false
	}
}

// bookmark applies a bookmark.
func (x *Index) bookmark(stream *stream, version string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.observe(stream, version)
	x.tell(nil)
}

// put brings what remains of an object into the graph and returns the workloads that it
// concerns.
func (x *Index) put(o *object, at dependency.Arrival) []dependency.WorkloadKey {
	switch {
	case o.workload != nil:
		w := o.workload
		previous := x.graph.Workload(w.WorkloadKey)
		w.After(previous, at)
		x.setWorkload(w, previous, o.ResourceVersion, at)
		return []dependency.WorkloadKey{w.WorkloadKey}
	case o.source != nil:
		key := o.source.SourceKey
		o.source.After(x.graph.Source(key), x.graph.Deleted(key), at)
		x.graph.SetSource(o.source)
		return x.graph.Users(key)
	case o.namespace != nil:
		return x.setNamespace(o.Name, *o.namespace, o.terminating, o.ResourceVersion, at)
	case o.dropped != (dependency.WorkloadKey{}):
		// A workload that was shown and now has a controller is shown no longer.
		return x.dropWorkload(o.dropped)
	}
	return nil
}

// arrival returns how what is being applied was read: live, by an event, or by a list. Before the
// first sync nothing is known of the order of events.
func (x *Index) arrival(live bool) dependency.Arrival {
	x.order++
	at := dependency.Arrival{Order: x.order}
	if len(x.waiting) == 0 || x.rekeyed != nil {
		at.Live, at.Seen = live, x.clock.Now()
	}
	return at
}

// drop removes an object of a stream from the graph and returns the workloads that this
// concerns.
func (x *Index) drop(stream *stream, namespace, name, version string) []dependency.WorkloadKey {
	switch {
	case stream.sources != "":
		key := dependency.SourceKey{Kind: stream.sources, Namespace: namespace, Name: name}
		v, _ := strconv.ParseUint(version, 10, 64)
		at := x.arrival(true)
		x.graph.DeleteSource(key, dependency.Change{Version: v, Seen: at.Seen, Order: at.Order})
		return x.graph.Users(key)
	case stream.workloads != "":
		return x.dropWorkload(dependency.WorkloadKey{Kind: stream.workloads, Namespace: namespace, Name: name})
	default:
		return x.setNamespace(name, nil, false, version, x.arrival(true))
	}
}

func (x *Index) dropWorkload(key dependency.WorkloadKey) []dependency.WorkloadKey {
	if x.graph.Workload(key) == nil {
		return nil
	}
	x.graph.DeleteWorkload(key)
	return []dependency.WorkloadKey{key}
}

// setNamespace applies the annotations of a namespace, which are defaults for all
// workloads in it, and whether it is being deleted.
func (x *Index) setNamespace(name string, annotations map[string]string, terminating bool, version string, at dependency.Arrival) []dependency.WorkloadKey {
	annotated, ending := x.graph.SetNamespace(name, annotations), x.graph.SetTerminating(name, terminating)
	if !annotated && !ending {
		return nil
	}
	var touched []*dependency.Workload
	x.graph.EachWorkloadIn(name, func(w *dependency.Workload) { touched = append(touched, w) })
	keys := make([]dependency.WorkloadKey, len(touched))
	for i, w := range touched {
		next := *w // values in the graph are immutable
		x.setWorkload(&next, w, version, at)
		keys[i] = w.WorkloadKey
	}
	return keys
}

// setWorkload brings a workload into the graph, with what annotations say of it: its own
// and those of its namespace, one of which has just come in a version.
func (x *Index) setWorkload(w, previous *dependency.Workload, version string, at dependency.Arrival) {
	p := policy.Note(w, previous, x.graph.Namespace(w.Namespace), x.defaults, version, at)
	x.graph.SetWorkload(w, p.Sources)
}

// tell passes a change on. Before the first sync no sink is told: they would handle
// every workload once for each of its sources.
func (x *Index) tell(touched []dependency.WorkloadKey) {
	if len(x.waiting) > 0 {
		return
	}
	if len(x.unprobed) > 0 {
		x.unsure.Insert(touched...)
	}
	progress := x.announce()
	for _, s := range x.sinks {
		if len(touched) > 0 {
			s.Changed(x.graph, progress, touched)
		} else {
			s.Progressed(progress)
		}
	}
}

// observe notes the version of what is about to be applied.
func (x *Index) observe(stream *stream, version string) {
	s := x.seen[stream.name]
	s.at = x.clock.Now()
	if v, err := strconv.ParseUint(version, 10, 64); err == nil {
		s.revision = max(s.revision, v)
		x.progress.Latest = max(x.progress.Latest, v)
	}
	x.seen[stream.name] = s
}

// now returns the progress that has been made.
func (x *Index) now() dependency.Progress {
	p := x.progress
	p.Watermark = p.Latest
	for _, s := range x.seen {
		p.Watermark = min(p.Watermark, s.revision)
	}
	if p.Restored > 0 {
		// Versions that clients were given must not come again.
		p.Watermark, p.Latest, p.Floor = max(p.Watermark, x.told.Watermark), max(p.Latest, x.told.Latest), max(p.Floor, x.told.Floor)
	}
	return p
}

// announce returns the progress for the sinks.
func (x *Index) announce() dependency.Progress {
	x.told = x.now()
	return x.told
}
