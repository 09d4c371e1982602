// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
)

// Streams of optional kinds come and go with the definition of the resource, and with the right to read it. One that is not
// read counts as empty: it is not awaited, and does not hold back the watermark.
//
// What versions mean (docs/correctness.md) stays right, because a list raises the floor, and because a replica does not
// compare versions with others until these have noticed as well.

// othersFollow is the time after which all replicas have noticed that a kind can be read, or no longer can. They ask for definitions at least every
// 30 seconds, retry a refused list every 30 to 60 seconds, and keep for 30 seconds what they may no longer read.
const othersFollow = 2 * time.Minute

// optionalStreams is what an index knows about streams of optional kinds, by their names.
type optionalStreams struct {
	// read are those whose list has been applied, and applying those whose first list is about to be.
	read, applying map[string]bool
	// changed is when a stream last came or went, if other replicas may not have noticed yet; else zero.
	changed time.Time
	// denied is what the server may not read, by resource: of all optional kinds.
	denied map[string]sets.Set[string]
}

func newDenied(streams []*stream) map[string]sets.Set[string] {
	denied := map[string]sets.Set[string]{}
	for _, s := range streams {
		if s.optional != nil {
			denied[s.optional.Resource.GroupResource().String()] = sets.Set[string]{}
		}
	}
	return denied
}

// joined notes that a list of an optional stream has been applied. The lock is held.
func (x *Index) joined(s *stream) {
	if !x.optional.read[s.name] {
		x.optional.read[s.name] = true
		x.streamsChanged()
	}
}

// streamsChanged notes that other replicas may read other streams than this one. Versions are not compared until they have
// followed: a client that switched would miss what a stream has brought or taken.
func (x *Index) streamsChanged() {
	if len(x.waiting) == 0 {
		x.optional.changed = x.clock.Now()
	}
}

// leave notes that an optional stream cannot be read: its definition is gone, or the right to read it. Its workloads leave the
// graph. It reports whether this was the last stream that was awaited.
func (x *Index) leave(s *stream) (synced bool) {
	if !x.knows(s) {
		return false
	}
	defer x.tellSinks()
	x.change()
	known := x.snapshot()
	x.mu.Unlock()
	gone := s.names(known)

	x.change()
	defer x.mu.Unlock()
	var touched touched
	for n := range gone { // nothing else adds or removes objects of the stream
		touched.add(s.drop(x, n.namespace, n.name, x.arrival(true)))
		if x.countApplied() {
			x.tellPart(&touched)
		}
	}
	x.seen.forget(s.name)
	if x.optional.read[s.name] {
		delete(x.optional.read, s.name)
		x.streamsChanged()
	}
	return x.withdraw(s.name, touched)
}

// knows reports whether an optional stream is read or awaited; else there is nothing of it in the graph.
func (x *Index) knows(s *stream) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.optional.read[s.name] || x.waiting[s.name]
}

// reads reports whether an optional stream has been read.
func (x *Index) reads(s *stream) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.optional.read[s.name]
}

// giveUp stops waiting for the first list of an optional stream, which fails or takes too long, so that
// its definition costs only its own kind. What a list reads later is new then. It reports whether this was the last stream
// that was awaited.
func (x *Index) giveUp(s *stream) (synced bool) {
	defer x.tellSinks()
	x.change()
	defer x.mu.Unlock()
	if !x.waiting[s.name] || x.optional.applying[s.name] {
		return false
	}
	return x.withdraw(s.name, touched{})
}

// withdraw notes that a stream is neither awaited nor compared with others.
func (x *Index) withdraw(name string, what touched) (synced bool) {
	if x.waiting[name] {
		x.optional.applying[name] = true // so that it is not withdrawn again while the lock is released
		synced = x.arrived(name)
	}
	delete(x.optional.applying, name)
	if !x.optional.read[name] {
		x.isProbed(name)
	}
	x.note(what)
	return synced
}

// awaitsOthers reports whether a stream that is not optional is awaited.
func (x *Index) awaitsOthers(optional sets.Set[string]) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	for name := range x.waiting {
		if !optional.Has(name) {
			return true
		}
	}
	return false
}

// admit is called with a list of an optional stream before it is applied. If it comes late, it first checks that revisions of
// the stream can be compared with those of the others, in both directions: nothing is compared before it is known.
// With a list that is awaited, this is done for all streams after the sync; see probe.
func (x *Index) admit(ctx context.Context, s, always *stream, revision func(context.Context, *stream) (uint64, error)) error {
	x.mu.Lock()
	awaited, read := x.waiting[s.name], x.optional.read[s.name]
	if awaited {
		x.optional.applying[s.name] = true
	}
	x.mu.Unlock()
	if awaited || read {
		return nil
	}
	least := uint64(0)
	for _, each := range []*stream{s, always} {
		before, own := x.latest(each)
		asked := x.clock.Now()
		now, err := revision(ctx, each)
		if err != nil {
			return err
		}
		x.probed(ctx, each, asked, now, max(before, least), own)
		least = now
	}
	return nil
}

// deny notes whether the server may not read an optional stream, and reports whether that changes what is known of the
// resource.
func (x *Index) deny(s *stream, verb string, is bool) (changed bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	denied, what := x.optional.denied[s.optional.Resource.GroupResource().String()], verb+" "+s.name
	before := denied.Len() > 0
	if is {
		denied.Insert(what)
	} else {
		denied.Delete(what)
	}
	return before != (denied.Len() > 0)
}

// Forbidden returns the resources of optional kinds, as RESOURCE.GROUP, and whether the server lacks the right to read each of
// them, or some namespaces of it. It counts as empty there.
func (x *Index) Forbidden() map[string]bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	out := map[string]bool{}
	for resource, denied := range x.optional.denied {
		out[resource] = denied.Len() > 0
	}
	return out
}
