// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"cmp"
	"slices"
	"time"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/limit"
)

// set applies one object that was added or changed.
func (x *Index) set(stream *stream, o *object) {
	defer x.tellSinks()
	x.change()
	defer x.mu.Unlock()
	x.apply(stream, o.ResourceVersion, func() touched { return stream.put(x, o, x.arrival(true)) })
}

// remove applies the deletion of one object.
func (x *Index) remove(stream *stream, o *object) {
	defer x.tellSinks()
	x.change()
	defer x.mu.Unlock()
	x.apply(stream, o.ResourceVersion, func() touched { return stream.drop(x, o.Namespace, o.Name, x.arrival(true)) })
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

// replace applies a list: objects that are not in it have been deleted. It reports whether
// this was the last of the first lists.
func (x *Index) replace(stream *stream, objects []any, version string) (synced bool) {
	defer x.tellSinks()
	known, before, first := x.beginList(stream, version)
	// Nothing else adds or removes objects of the stream, so it is known which of them
	// change while the index is in use.
	gone := stream.names(known)
	var changed []versioned
	var strange *object // its version is not newer than what had been read, and it had not been
	for _, o := range objects {
		o := o.(*object)
		if o.value != nil {
			delete(gone, name{o.Namespace, o.Name})
		}
		v, held := dependency.ParseVersion(o.ResourceVersion), stream.holds(known, o)
		// It was read in another version of its definition.
		if !held || stream.again {
			changed = append(changed, versioned{o, v})
		}
		if !held && !stream.again && o.value != nil && !stream.lossy && 0 < v && v <= before {
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
		if x.countApplied() {
			x.tellPart(&touched)
		}
	}
	for _, o := range changed {
		at := x.arrival(false)
		at.Since = x.seen.of(stream.name).at
		touched.add(stream.put(x, o.object, at))
		next()
	}
	for n := range gone {
		at := x.arrival(false)
		at.Since = x.seen.of(stream.name).at
		touched.add(stream.drop(x, n.namespace, n.name, at))
		next()
	}
	if stream.policies() {
		touched.add(x.setLimits(limit.In(x.graph).Unread(false)))
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
	delete(x.waiting, name)
	x.graph.TakeChangedGlobs() // the sinks are told of all workloads
	x.graph.SetComplete(x.clock.Now())
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
// the current graph, up to which revision that has the objects of the stream, and whether this is one
// of the first lists.
func (x *Index) beginList(stream *stream, version string) (known *dependency.Graph, before uint64, first bool) {
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
	return x.snapshot(), before, first
}

// bookmark applies a bookmark.
func (x *Index) bookmark(stream *stream, version string) {
	defer x.tellSinks()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.observe(stream, version)
	x.note(touched{})
}

// arrival returns how the current input was read: live, by an event, or by a list. Until everything has
// been read, the order of events of different resources is not known, so they have no time.
func (x *Index) arrival(live bool) dependency.Arrival {
	at := dependency.Arrival{Live: live}
	if len(x.waiting) == 0 {
		at.Seen = x.clock.Now()
	}
	return at
}

// observe notes the version of the input that is about to be applied.
func (x *Index) observe(stream *stream, version string) {
	x.begin(version)
	x.seen.observe(stream.name, dependency.ParseVersion(version), x.clock.Now())
}
