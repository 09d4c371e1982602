// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"fmt"
	"sync"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/limit"
	"github.com/configdep/configdep/pkg/policy"
)

// Sink is notified of every change of the graph, in order. The graph is an immutable snapshot at that
// change: sinks may keep it, and the index continues while they use it. Only the next notification
// waits.
type Sink interface {
	// Synced is called when the graph equals the cluster for the first time, and each time that
	// everything has been read again: because the key of the digests was replaced, or because
	// etcd was found to be restored (then at.Restored has grown). There are no other
	// notifications before that.
	Synced(now decide.Evaluator, at dependency.Progress)
	// Changed is called after each change that affects workloads.
	Changed(now decide.Evaluator, at dependency.Progress, delta dependency.Delta)
	// Progressed is called when there is progress without such a change.
	Progressed(at dependency.Progress)
}

// Index holds the dependency graph of the cluster. Its methods are safe for concurrent use.
type Index struct {
	sinks     []Sink
	clock     clock.PassiveClock
	defaults  policy.Defaults
	scope     Scope    // what is read
	resources []string // that are awaited, by the names of their streams
	batch     int      // the objects of a turn

	// reading is held while a snapshot is read, so that the key of the digests is not replaced in the
	// meantime.
	reading sync.RWMutex

	mu       sync.RWMutex // is held for what changes the graph, and for no look at all of it
	graph    *dependency.Graph
	taken    *dependency.Graph // a snapshot; nil: the graph has changed since
	waiting  map[string]bool   // the streams whose first list has not been applied
	seen     seenStreams
	progress dependency.Progress // but for the watermark
	told     dependency.Progress // what the sinks were told last
	regress  bool                // etcd was found to be restored since the last Reset
	restart  func()              // ends the reading of everything, which then begins again
	unprobed map[string]bool     // the streams whose current revision has not been asked for
	optional optionalStreams
	news     []news // that the sinks have yet to be told

	turnBegan time.Time // when the lock was last taken for a change
	applied   int       // objects since then

	telling sync.Mutex // keeps what the sinks are told in order
}

// HasKey reports whether the key of the digests has been read.
func (x *Index) HasKey() bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.graph.Digester() != nil
}

// NewIndex returns an index that has read nothing.
func NewIndex(c clock.PassiveClock, sinks ...Sink) *Index {
	return newIndex(c, namesOf(Scope{}.streams(nil)), sinks...)
}

func newIndex(c clock.PassiveClock, resources []string, sinks ...Sink) *Index {
	x := &Index{sinks: sinks, clock: c, resources: resources, batch: turnObjects}
	x.optional.denied = newDenied(nil)
	x.Reset()
	return x
}

// regressed is called when the revision of a resource has gone back. The lock is held.
func (x *Index) regressed(resource string, now, before uint64) {
	x.restored("The revision of a resource has gone back, as after a restore of etcd: reading everything again",
		"resource", resource, "revision", now, "before", before)
}

// restored is called when it is found that etcd was restored from a backup: what is known cannot be
// compared with new input, so everything is read again. The message says how it was found. The lock
// is held.
func (x *Index) restored(message string, found ...any) {
	klog.Background().Error(nil, message, found...)
	x.progress.SeveralCounters, x.progress.OneCounter = true, false
	x.progress.Restored++
	x.regress = true
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

// Within limits the index to a scope. It is called before Run.
func (x *Index) Within(scope Scope) {
	streams := scope.streams(nil)
	x.scope, x.resources, x.optional.denied = scope, namesOf(streams), newDenied(streams)
	x.Reset()
}

func namesOf(streams []*stream) []string {
	names := make([]string, len(streams))
	for i, s := range streams {
		names[i] = s.name
	}
	return names
}

// change takes the lock for changes of the graph.
func (x *Index) change() {
	x.mu.Lock()
	x.taken = nil
	x.applied, x.turnBegan = 0, x.clock.Now()
}

// snapshot returns the current graph. The write lock is held.
func (x *Index) snapshot() *dependency.Graph {
	if x.taken == nil {
		x.taken = x.graph.Snapshot()
	}
	return x.taken
}

// Reset forgets everything. The index is synced when each resource has been read again.
func (x *Index) Reset() {
	x.reading.Lock()
	defer x.reading.Unlock()
	x.change()
	defer x.mu.Unlock()
	var digester *dependency.Digester
	if x.graph != nil {
		digester = x.graph.Digester()
	}
	x.graph = dependency.NewGraph()
	x.graph.SetDigester(digester)
	x.waiting, x.unprobed, x.seen = map[string]bool{}, map[string]bool{}, newSeenStreams()
	x.progress.Floor, x.progress.OneCounter = 0, false
	if x.regress { // what comes has nothing to do with what was
		x.progress.Latest, x.regress = 0, false
	}
	x.optional.read, x.optional.applying, x.optional.changed = map[string]bool{}, map[string]bool{}, time.Time{}
	for _, name := range x.resources {
		x.waiting[name], x.unprobed[name] = true, true
	}
	if x.scope.Policies {
		x.graph.SetLimits(limit.In(x.graph).Unread(true))
	}
	x.graph.SetUnreadNamespace(x.scope.unreadNamespace())
	x.graph.SetSelectedByLabel(x.scope.SourceSelector != nil)
	switch {
	case x.scope.WithoutConfigMaps:
		x.graph.LeaveOut(dependency.ConfigMap)
	case x.scope.WithoutSecrets:
		x.graph.LeaveOut(dependency.Secret)
	}
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

// Read implements policy.Index. The index continues while f runs, but does not begin to read everything again with
// another key of the digests.
func (x *Index) Read(f func(decide.Evaluator)) bool {
	x.reading.RLock()
	defer x.reading.RUnlock()
	g := x.current()
	if g == nil {
		return false
	}
	f(x.evaluator(g))
	return true
}

func (x *Index) evaluator(g *dependency.Graph) decide.Evaluator {
	return decide.Evaluator{Graph: g, Defaults: x.defaults}
}

// current returns the current graph; nil: it does not equal the cluster.
func (x *Index) current() *dependency.Graph {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.waiting) > 0 {
		return nil
	}
	return x.snapshot()
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
	out := make(map[string]time.Time, len(x.seen.byName))
	for name, s := range x.seen.byName {
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

// now returns the progress that has been made.
func (x *Index) now() dependency.Progress {
	p := x.progress
	p.Watermark = p.Latest
	if least, found := x.seen.watermark(); found {
		p.Watermark = min(p.Watermark, least)
	}
	p.OneCounter = p.OneCounter && x.optional.changed.IsZero()
	if p.Restored > 0 {
		// Versions that clients have received must not be used again.
		p.Watermark, p.Latest, p.Floor = max(p.Watermark, x.told.Watermark), max(p.Latest, x.told.Latest), max(p.Floor, x.told.Floor)
	}
	return p
}

// announce returns the progress for the sinks.
func (x *Index) announce() dependency.Progress {
	if changed := x.optional.changed; !changed.IsZero() && x.clock.Since(changed) >= othersFollow {
		x.optional.changed = time.Time{}
		x.progress.Floor = max(x.progress.Floor, x.progress.Latest)
	}
	x.told = x.now()
	return x.told
}
