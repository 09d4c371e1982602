// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"fmt"
	"maps"
	"slices"
	"sort"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
)

// catchUpEvent is what has become of an object since a client was at another replica.
type catchUpEvent[T Object] struct {
	typ    watch.EventType
	key    string
	object T
}

// begin finds where to start. Its errors are API errors: that is not known any more.
func (w *watcher[T]) begin(from version) error {
	now := w.cache.latest.Load()
	if !now.synced {
		return w.cache.NotReady()
	}
	w.epoch, w.drains, w.floor, w.position = now.epoch, now.drains, from, now.events.end
	switch {
	case w.initial:
		w.objects = now.trees
		w.floor = now.version
		if from > w.floor {
			w.floor = from.shared()
		}
		w.pending = w.options.AllowBookmarks && w.options.SendInitialEvents != nil
	case from == 0:
		w.floor = now.version
	case now.own(from):
		w.position = now.events.after(from).start
	case now.knowsAfter(from):
		w.origin, w.catchUpAfter, w.began = originForeign, from.watermark(), w.cache.Clock.Now()
		if w.options.Matches != nil || now.version.watermark() < w.catchUpAfter {
			w.members = map[string]bool{}
		}
		w.floor = from.shared()
		w.catchUp = w.catchUpEvents(now)
		if len(w.catchUp) > 0 && now.version.watermark() < w.catchUpAfter {
			w.note(shownOlder)
		}
		if len(w.catchUp) >= topCounter-int(w.floor.counter()) {
			return w.expired()
		}
		w.through = now.version
	default:
		return apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %s (%s)", from, now.version))
	}
	return nil
}

// changeElsewhere is what may have become of an object since the client was elsewhere, by the events of here.
type changeElsewhere[T Object] struct {
	had, held bool // the client had it as a match; or may have had it as one
	before    T
	last      T // nil: no event tells of it
}

// catchUpEvents returns what a client that comes from elsewhere may not have seen, one event for
// each object: what has become of those that inputs beyond a watermark have touched, and of
// those that follow from the time, as there it may have been, or be, at another. What they
// have been meanwhile is left out: the client may have seen later states, and must not be
// shown earlier ones.
func (w *watcher[T]) catchUpEvents(now *snapshot[T]) (out []catchUpEvent[T]) {
	changes := w.changesElsewhere(now)
	for _, key := range slices.Sorted(maps.Keys(changes)) {
		k := changes[key]
		o, found := now.get(key)
		has := found && w.matches(o)
		switch {
		case !has && k.had:
			o = k.before // as it was when it matched
		case !found:
			o = k.last
		}
		var none T
		if k.last == none {
			k.had, k.held = has, w.mayMatch(o)
		}
		if w.members != nil {
			w.members[key] = has
		}
		typ := watch.Deleted
		switch {
		case has && k.had:
			typ = watch.Modified
		case has:
			typ = watch.Added
		case !k.held:
			continue
		}
		out = append(out, catchUpEvent[T]{typ, key, o})
	}
	return out
}

// changesElsewhere returns the objects that the client may have in another state, by their keys.
func (w *watcher[T]) changesElsewhere(now *snapshot[T]) map[string]*changeElsewhere[T] {
	changes := map[string]*changeElsewhere[T]{}
	now.timed.AscendGreaterOrEqual(w.scope.String(), func(key string) bool {
		if w.scope.has(key) {
			changes[key] = &changeElsewhere[T]{}
			return true
		}
		return false
	})
	var none T
	now.events.skip(func(e *event[T]) bool { return e.cause <= w.catchUpAfter }).each(func(e *event[T]) {
		if !w.scope.has(e.key) {
			return
		}
		k := changes[e.key]
		if k == nil {
			k = &changeElsewhere[T]{}
			changes[e.key] = k
		}
		if k.last == none {
			k.before, k.had = e.previous, w.matches(e.previous)
		}
		k.held = k.held || w.mayMatch(e.previous) || w.mayMatch(e.object)
		if k.last = e.object; k.last == none {
			k.last = e.previous
		}
	})
	return changes
}

// matches reports whether the watch is of an object, and mayMatch whether another replica may
// have shown it so: it has applied the inputs in another order.
func (w *watcher[T]) matches(o T) bool {
	var none T
	return o != none && (w.options.Matches == nil || w.options.Matches(o))
}

func (w *watcher[T]) mayMatch(o T) bool {
	var none T
	return o != none && (w.options.MatchesOwn == nil || w.options.MatchesOwn(o))
}

// sendInitial sends the objects that there are, in any order.
func (w *watcher[T]) sendInitial() bool {
	part := w.cache.beginning.enter(groupKey{scope: w.scope.String()}, func() []string { return w.objects.chunks(w.scope) })
	defer part.leave()
	objects := make([]T, 0, chunkSize)
	for chunk, from, until, ok := part.next(); ok; chunk, from, until, ok = part.next() {
		objects = objects[:0]
		w.objects.objects.AscendGreaterOrEqual(item[T]{key: from}, func(i item[T]) bool {
			if !w.scope.has(i.key) || until != "" && i.key >= until {
				return false
			}
			if w.matches(i.object) {
				objects = append(objects, i.object)
			}
			return true
		})
		if chunk == nil {
			for _, o := range objects {
				if !w.emit(watch.Event{Type: watch.Added, Object: w.cache.Copy(o)}) {
					return false
				}
			}
			continue
		}
		for _, o := range chunk.share(objects) {
			if !w.emit(watch.Event{Type: watch.Added, Object: o}) {
				return false
			}
		}
	}
	return true
}

// sendCatchUp sends what has become of objects since the client was elsewhere, in any order. Only who has
// seen all of it has seen the present version.
func (w *watcher[T]) sendCatchUp() bool {
	part := w.cache.beginning.enter(groupKey{w.scope.String(), true}, w.catchUpChunks)
	defer part.leave()
	left := len(w.catchUp)
	for chunk, from, until, ok := part.next(); ok; chunk, from, until, ok = part.next() {
		some := w.catchUp[w.catchUpFrom(from):]
		if until != "" {
			some = w.catchUp[w.catchUpFrom(from):w.catchUpFrom(until)]
		}
		var shared []*encodedOnce[T]
		if chunk != nil {
			objects := make([]T, len(some))
			for i := range some {
				objects[i] = some[i].object
			}
			shared = chunk.share(objects)
		}
		for i := range some {
			var v version // the next one that the client can have
			if left--; left == 0 {
				v = w.through
			}
			v, _ = w.label(v) // there are enough, as begin has seen to
			var sent bool
			if chunk != nil {
				sent = w.emitAs(some[i].typ, shared[i], v)
			} else {
				sent = w.send(some[i].typ, some[i].object, v)
			}
			if !sent {
				return false
			}
		}
	}
	return true
}

// catchUpChunks returns the keys with which chunks of these events begin.
func (w *watcher[T]) catchUpChunks() []string {
	keys := []string{w.scope.String()}
	for i := chunkSize; i < len(w.catchUp); i += chunkSize {
		keys = append(keys, w.catchUp[i].key)
	}
	return keys
}

// catchUpFrom returns the index of the first of these events with a key or a later one.
func (w *watcher[T]) catchUpFrom(key string) int {
	return sort.Search(len(w.catchUp), func(i int) bool { return w.catchUp[i].key >= key })
}
