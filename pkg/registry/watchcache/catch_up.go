// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"maps"
	"slices"
	"sort"

	"k8s.io/apimachinery/pkg/watch"
)

// catchUpEvent is what has become of an object since a client was at another replica.
type catchUpEvent[T Object] struct {
	typ    watch.EventType
	key    string
	object T
}

// missedChanges are the changes of an object that a client may not have seen.
type missedChanges[T Object] struct {
	had     bool // as a match, before the first of them
	mayHave bool // another replica may have shown it as a match, at any time
	before  T    // as it was before the first; nil: it was not there
	last    T    // as it was last, before it went if it has; nil: there are none, but it is timed
}

// catchUpEvents returns what a client that comes from elsewhere may not have seen, one event for
// each object: what has become of those that inputs beyond a watermark have touched, and of
// those that are timed, as they may differ there. What they have been meanwhile is left out:
// the client may have seen later states, and must not be shown earlier ones.
func (w *watcher[T]) catchUpEvents(now *snapshot[T]) (out []catchUpEvent[T]) {
	missed := w.missed(now)
	for _, key := range slices.Sorted(maps.Keys(missed)) {
		if w.ctx.Err() != nil {
			break // nothing is sent any more
		}
		o, _ := now.get(key)
		if typ, o := w.outcome(missed[key], o); typ != "" {
			out = append(out, catchUpEvent[T]{typ, key, o})
		}
		if w.told != nil {
			w.told[key] = true
		}
	}
	return out
}

// missed returns, by key, the objects that may differ from what the client has seen.
func (w *watcher[T]) missed(now *snapshot[T]) map[string]*missedChanges[T] {
	var none T
	out := map[string]*missedChanges[T]{}
	now.timed.AscendGreaterOrEqual(w.scope.String(), func(key string) bool {
		if !w.scope.has(key) {
			return false
		}
		out[key] = &missedChanges[T]{}
		return true
	})
	for _, e := range now.events.skip(func(e *event[T]) bool { return e.cause <= w.catchUpAfter }).kept {
		if !w.scope.has(e.key) || w.ctx.Err() != nil {
			continue
		}
		m := out[e.key]
		if m == nil {
			m = &missedChanges[T]{}
			out[e.key] = m
		}
		if m.last == none {
			m.before, m.had = e.previous, w.matches(e.previous)
		}
		m.mayHave = m.mayHave || w.mayMatch(e.previous) || w.mayMatch(e.object)
		if m.last = e.object; m.last == none {
			m.last = e.previous
		}
	}
	return out
}

// outcome returns what a client is told of an object of which it may have missed changes, and which is o
// now (nil: it has gone); "": nothing.
func (w *watcher[T]) outcome(m *missedChanges[T], o T) (watch.EventType, T) {
	var none T
	has := w.matches(o)
	switch {
	case m.last == none: // the client may have seen it otherwise
		return eventType(has || w.mayMatch(o), has), o
	case has:
		return eventType(m.had, has), o
	case !m.mayHave:
		return "", none
	case m.had:
		return watch.Deleted, m.before // as it was when it matched
	case o == none:
		return watch.Deleted, m.last
	default:
		return watch.Deleted, o
	}
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
