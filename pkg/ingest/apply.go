// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"cmp"
	"slices"
	"time"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
)

// set applies one object that was added or changed.
func (x *Index) set(stream *stream, o *object) {
	defer x.tellSinks()
	x.change()
	defer x.mu.Unlock()
	x.apply(stream, o.ResourceVersion, func() touched { return x.put(o, x.arrival(true)) })
}

// remove applies the deletion of one object.
func (x *Index) remove(stream *stream, o *object) {
	defer x.tellSinks()
	x.change()
	defer x.mu.Unlock()
	since := x.seen.of(stream.name).at
	x.apply(stream, o.ResourceVersion, func() touched { return x.drop(stream, o.Namespace, o.Name, o.ResourceVersion, seen{at: since}) })
}

// apply applies an event, and notifies the sinks of it.
func (x *Index) apply(stream *stream, version string, change func() touched) {
	if stream.namespaces() { // that all of it has been applied is said with the last of it
		x.begin(version)
		what := change()
		x.observe(stream, version)
		x.note(what)
		return
	}
	x.observe(stream, version)
	x.note(change())
	x.tellWaiting()
}

// tellWaiting updates workloads for changes of sources for which they wait. There may be many, so it lets others
// use the index in between, for whom it is as if all had been updated. It reports whether others have used the
// index.
func (x *Index) tellWaiting() (letGo bool) {
	for x.graph.TellWaiting(1) {
		if x.countApplied() {
			x.yield()
			letGo = true
		}
	}
	return letGo
}

// yield notifies the sinks of what has been noted, and lets others use the index. The lock is held before and
// after.
func (x *Index) yield() {
	x.mu.Unlock()
	x.tellSinks()
	x.change()
}

// begin notes that what is about to be applied may be as new as a version.
func (x *Index) begin(version string) {
	x.progress.Latest = max(x.progress.Latest, dependency.ParseVersion(version))
}

// An input that affects many objects is applied in turns, between which others can use the index. A turn ends after
// turnObjects or turnTime, whichever comes first, because one object can take as long as thousands of others. Streams
// are independent of each other, and a list counts as applied only with its last turn.
const (
	turnObjects = 256
	turnTime    = 2 * time.Millisecond
)

// countApplied counts an object of this turn, and reports whether the turn is over.
func (x *Index) countApplied() (over bool) {
	x.applied++
	return x.applied >= x.batch || x.clock.Since(x.turnBegan) >= turnTime
}

// letOthers releases the lock, which is held, for a moment.
func (x *Index) letOthers() {
	x.mu.Unlock()
	x.change()
}

// replace applies a list: objects that are not in it have been deleted. It reports whether
// this was the last of the first lists.
func (x *Index) replace(stream *stream, objects []any, version string) (synced bool) {
	defer x.tellSinks()
	known, before, first, rekeyed := x.beginList(stream, version)
	// Nothing else adds or removes objects of the stream, so it is known which of them
	// change while the index is in use.
	gone := stream.names(known)
	var changed []versioned
	var strange *object // its version is not newer than what had been read, and it had not been
	for _, o := range objects {
		o := o.(*object)
		if o.kept() {
			delete(gone, name{o.Namespace, o.Name})
		}
		v, held := dependency.ParseVersion(o.ResourceVersion), holds(known, o)
		// It was read with another key, or in another version of its definition.
		again := rekeyed && (o.source != nil || o.mounted != nil) || stream.again
		if again || !held {
			changed = append(changed, versioned{o, v})
		}
		// A Secret that is not read may have been one that is, of which another stream tells.
		if !held && !stream.again && o.kept() && o.namespace == nil && o.unread == nil && 0 < v && v <= before {
			strange = o
		}
	}
	// Ordered by version, so that objects which were read later have later versions.
	slices.SortStableFunc(changed, func(a, b versioned) int { return cmp.Compare(a.version, b.version) })

	x.change()
	defer x.mu.Unlock()
	if strange != nil && !x.regress {
		x.restored("An object had not been read, although its version is not newer than what had been, as after a restore of etcd: reading everything again",
			"resource", stream.name, "namespace", strange.Namespace, "name", strange.Name, "version", strange.ResourceVersion, "read", before)
	}
	var touched touched
	next := func() {
		if x.tellWaiting() || x.countApplied() {
			x.tellPart(&touched)
		}
	}
	var began dependency.Moment // of the reading, if the stream is read late
	if stream.optional != nil && !x.optional.read[stream.name] {
		began = dependency.Moment{Version: dependency.ParseVersion(version), Order: x.order}
	}
	for _, o := range changed {
		at := x.arrival(false)
		if began != (dependency.Moment{}) && !at.Seen.IsZero() { // else it belongs to the first lists
			at.Listed, at.Seen = began, time.Time{} // when it changed is as little known as after the start of the process
		}
		at.After = x.seen.of(stream.name).revision
		at.Rekeyed = rekeyed && (o.source != nil || o.mounted != nil)
		touched.add(x.put(o.object, at))
		next()
	}
	for n := range gone {
		touched.add(x.drop(stream, n.namespace, n.name, version, x.seen.of(stream.name)))
		next()
	}
	x.observe(stream, version)
	stream.again = false
	if stream.optional != nil {
		x.joined(stream)
	}
	if !first {
		x.note(touched)
		return false
	}
	synced = x.arrived(stream.name)
	delete(x.optional.applying, stream.name)
	return synced
}

// arrived notes that a stream is not awaited any longer, and reports whether it was the last one. The lock is held, and may
// be released meanwhile.
func (x *Index) arrived(name string) (synced bool) {
	if len(x.waiting) > 1 || !x.waiting[name] {
		delete(x.waiting, name)
		return false
	}
	if x.rekeyed != nil {
		x.translate()
	} else {
		x.order++
		x.graph.SetSince(dependency.Moment{Version: x.progress.Latest, Order: x.order})
	}
	delete(x.waiting, name)
	x.news = append(x.news, news{graph: x.snapshot(), at: x.announce(), synced: true})
	return true
}

// tellPart notifies the sinks of what has been touched so far, and lets others use the index. More of the same input
// follows.
func (x *Index) tellPart(what *touched) {
	x.note(*what)
	what.reset()
	x.yield()
}

// versioned is an object with its version as a number.
type versioned struct {
	*object
	version uint64
}

// beginList notes that a stream has been listed at a version: objects may have been created and
// deleted unseen before that. It does not yet advance the progress to that version. It returns
// the current graph, up to which revision that has the objects of the stream, whether this is one
// of the first lists, and whether it is read with another key.
func (x *Index) beginList(stream *stream, version string) (known *dependency.Graph, before uint64, first, rekeyed bool) {
	x.change()
	defer x.mu.Unlock()
	before = x.seen.of(stream.name).revision
	revision := before
	if v := dependency.ParseVersion(version); v > 0 && v < revision {
		x.regressed(stream.name, v, revision)
	} else {
		revision = max(revision, v)
	}
	x.progress.Latest = max(x.progress.Latest, revision)
	x.progress.Floor = max(x.progress.Floor, revision)
	first = x.waiting[stream.name]
	return x.snapshot(), before, first, first && x.rekeyed != nil
}

// holds reports whether a graph has an object in just the version in which it was listed.
func holds(g *dependency.Graph, o *object) bool {
	switch {
	case o.workload != nil:
		w := g.Workload(o.workload.WorkloadKey)
		return w != nil && w.UID == o.workload.UID && w.ResourceVersion == o.ResourceVersion
	case o.source != nil:
		s := g.Source(o.source.SourceKey)
		return s != nil && s.UID == o.source.UID && s.ResourceVersion == o.ResourceVersion
	case o.unread != nil:
		u := g.Unread(o.unread.SourceKey)
		return u != nil && u.Type == o.unread.Type && u.UID == o.unread.UID && u.ResourceVersion == o.ResourceVersion
	case o.mounted != nil:
		m := g.PodStatus(o.Namespace, o.Name)
		return m != nil && m.ResourceVersion == o.ResourceVersion
	case o.agent != nil:
		p := g.AgentPod(o.Namespace, o.Name)
		return p != nil && p.ResourceVersion == o.ResourceVersion
	default:
		return false
	}
}

// bookmark applies a bookmark.
func (x *Index) bookmark(stream *stream, version string) {
	defer x.tellSinks()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.observe(stream, version)
	x.note(touched{})
}

// put adds a reduced object to the graph and returns what it affects.
func (x *Index) put(o *object, at dependency.Arrival) touched {
	switch {
	case o.workload != nil:
		w := o.workload
		previous := x.workload(w.WorkloadKey)
		shared := w.KeepReferences(previous)
		x.graph.Borrow(w)
		w.After(previous, at)
		x.setWorkload(w, previous, o.ResourceVersion, at)
		what := touchedWorkload(w)
		if !shared {
			what.add(x.lend(w.WorkloadKey, o.ResourceVersion, at))
		}
		what.add(x.makeRoom(previous, w, o.ResourceVersion, at))
		return what
	case o.source != nil:
		key := o.source.SourceKey
		o.source.After(x.graph.Source(key), x.graph.DeletedBefore(key), at)
		x.graph.SetSource(o.source)
		return x.users(key)
	case o.unread != nil:
		x.graph.SetUnread(o.unread, at)
		return x.users(o.unread.SourceKey)
	case o.mounted != nil:
		return x.usersOf(x.graph.SetPodStatus(o.mounted, at))
	case o.unmounted:
		return x.usersOf(x.graph.DeletePodStatus(o.Namespace, o.Name, at))
	case o.agent != nil:
		p := *o.agent
		p.Seen = x.clock.Now()
		return x.known(x.graph.SetAgentPod(&p))
	case o.unowned:
		return x.known(x.graph.DeleteAgentPod(o.Namespace, o.Name))
	case o.namespace != nil:
		return x.setNamespace(o.Name, *o.namespace, o.terminating, o.ResourceVersion, at)
	case o.dropped != (dependency.WorkloadKey{}):
		// A workload that was shown and now has a controller is no longer shown.
		return x.dropWorkload(o.dropped)
	}
	return touched{}
}

// users returns the workloads that use a source. They are found without the lock, because
// there may be many.
func (x *Index) users(key dependency.SourceKey) (what touched) {
	if len(x.waiting) > 0 { // the sinks are told nothing before everything has been read
		return what
	}
	if x.tellsOfSources {
		what.changed = []dependency.SourceKey{key}
	}
	if x.graph.Used(key) {
		what.sources = []dependency.SourceKey{key}
	}
	return what
}

// usersOf is users for several sources.
func (x *Index) usersOf(keys []dependency.SourceKey) (what touched) {
	for _, key := range keys {
		what.add(x.users(key))
	}
	return what
}

// known returns those of some workloads that are in the graph as what a change affects.
func (x *Index) known(keys []dependency.WorkloadKey) (what touched) {
	for _, key := range keys {
		if x.graph.Workload(key) != nil {
			what.workloads = append(what.workloads, key)
		}
	}
	return what
}

// arrival returns how the current input was read: live, by an event, or by a list. Until everything has
// been read, the order of events of different resources is not known, so they have no time.
func (x *Index) arrival(live bool) dependency.Arrival {
	x.order++
	at := dependency.Arrival{Live: live, Order: x.order}
	if len(x.waiting) == 0 || x.rekeyed != nil {
		at.Seen = x.clock.Now()
	}
	return at
}

// drop removes an object of a stream, which existed at a time, from the graph and returns what this affects.
func (x *Index) drop(stream *stream, namespace, name, version string, since seen) touched {
	switch {
	case stream.sources != "":
		key := dependency.SourceKey{Kind: stream.sources, Namespace: namespace, Name: name}
		x.graph.DeleteSource(key, x.deletion(version, since))
		return x.users(key)
	case stream.unread != "":
		key := dependency.SourceKey{Kind: dependency.Secret, Namespace: namespace, Name: name}
		x.graph.DeleteUnread(key, stream.unread, x.deletion(version, since))
		return x.users(key)
	case stream.mounted:
		return x.usersOf(x.graph.DeletePodStatus(namespace, name, x.arrival(true)))
	case stream.agents:
		return x.known(x.graph.DeleteAgentPod(namespace, name))
	case stream.workloads != "":
		return x.dropWorkload(dependency.WorkloadKey{Kind: stream.workloads, Namespace: namespace, Name: name})
	default:
		return x.setNamespace(name, x.scope.unreadNamespace(), false, version, x.arrival(true))
	}
}

// deletion returns when an object was deleted that existed at a time.
func (x *Index) deletion(version string, since seen) dependency.Change {
	at := x.arrival(true)
	return dependency.Change{Version: dependency.ParseVersion(version), Seen: at.Seen, Order: at.Order, After: since.revision, Since: since.at}
}

func (x *Index) dropWorkload(key dependency.WorkloadKey) touched {
	w := x.graph.Workload(key)
	if w == nil {
		return touched{}
	}
	x.graph.DeleteWorkload(key)
	what, at := touchedWorkload(w), x.arrival(true)
	what.add(x.lend(key, w.ResourceVersion, at))
	what.add(x.makeRoom(w, nil, w.ResourceVersion, at))
	return what
}

// lend updates the workloads whose pods have the template of another one, which has been written in a version or deleted. There are at most
// dependency.MaxBorrowers.
func (x *Index) lend(key dependency.WorkloadKey, version string, at dependency.Arrival) touched {
	return x.borrowAgain(key, version, at, func(w *dependency.Workload) { w.StartAgain(version) })
}

// makeRoom updates the workloads that have the same template as one that comes, goes or has another template: only so many have its sources.
// Before and now are its states, of which one may be nil.
func (x *Index) makeRoom(before, now *dependency.Workload, version string, at dependency.Arrival) (what touched) {
	of := func(w *dependency.Workload) (of dependency.WorkloadKey) {
		if w != nil && w.TemplateOf != nil {
			of = *w.TemplateOf
		}
		return of
	}
	if of(before) == of(now) {
		return what
	}
	for _, key := range []dependency.WorkloadKey{of(before), of(now)} {
		if key != (dependency.WorkloadKey{}) {
			what.add(x.borrowAgain(key, version, at, func(*dependency.Workload) {}))
		}
	}
	return what
}

// borrowAgain gives the workloads whose pods have the template of another one what it consumes now, and calls f with those for which that is
// something else.
func (x *Index) borrowAgain(key dependency.WorkloadKey, version string, at dependency.Arrival, f func(*dependency.Workload)) (what touched) {
	for _, b := range x.graph.Borrowers(key) {
		w := x.workload(b)
		next := *w // values in the graph are immutable
		if x.graph.Borrow(&next) {
			f(&next)
			x.setWorkload(&next, w, version, at)
			what.add(touchedWorkload(&next))
		}
	}
	return what
}

// touchedWorkload returns what a change of a workload affects.
func touchedWorkload(w *dependency.Workload) touched {
	return touched{workloads: []dependency.WorkloadKey{w.WorkloadKey}}
}

// changingNamespace is a change of the annotations of a namespace that is being applied to its workloads. All
// namespaces are one stream, so there is one such change at a time.
type changingNamespace struct {
	version string
	at      dependency.Arrival
}

// setNamespace applies the annotations of a namespace, which are defaults for all workloads in it, and whether it is
// being deleted. There may be many workloads, so it lets others use the index in between. It returns what the sinks
// have yet to be notified of.
func (x *Index) setNamespace(name string, annotations map[string]string, terminating bool, version string, at dependency.Arrival) (out touched) {
	annotated, ending := x.graph.BeginNamespace(name, annotations, at.Order), x.graph.SetTerminating(name, terminating)
	if !annotated && !ending {
		return touched{}
	}
	graph := x.graph
	if annotated {
		x.changing = &changingNamespace{version, at}
	}
	graph.Snapshot().EachWorkloadIn(name, func(w *dependency.Workload) {
		if x.graph != graph { // everything has been forgotten meanwhile
			return
		}
		x.workload(w.WorkloadKey)
		out.workloads = append(out.workloads, w.WorkloadKey)
		if x.countApplied() {
			x.tellPart(&out)
		}
	})
	if x.graph != graph {
		return touched{}
	}
	graph.EndNamespace(name)
	x.changing = nil
	return out
}

// workload returns a workload, or nil, and first applies the annotations of its namespace to it, if that has not
// been done.
func (x *Index) workload(key dependency.WorkloadKey) *dependency.Workload {
	w := x.graph.Told(key)
	if w == nil || !x.graph.Behind(w) {
		return w
	}
	next := *w // values in the graph are immutable
	x.setWorkload(&next, w, x.changing.version, x.changing.at)
	return &next
}

// setWorkload adds a workload to the graph, with what annotations say about it: its own
// and those of its namespace, one of which has just been read in a version.
func (x *Index) setWorkload(w, previous *dependency.Workload, version string, at dependency.Arrival) {
	p := policy.Note(w, previous, x.graph.Namespace(w.Namespace), x.defaults, version, at)
	x.graph.SetWorkload(w, p.Patterns())
}

// observe notes the version of the input that is about to be applied.
func (x *Index) observe(stream *stream, version string) {
	x.begin(version)
	x.seen.observe(stream.name, dependency.ParseVersion(version), x.clock.Now())
}
