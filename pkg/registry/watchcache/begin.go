// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
)

// start finds where a watch begins from a version.
func (s *snapshot[T]) start(from version, initial bool) watchInput {
	switch {
	case !s.synced:
		return startUnsynced
	case initial:
		return startInitial
	case from == 0:
		return startNow
	case s.own(from):
		return startOwn
	case !s.knowsAfter(from):
		return startExpired
	case s.version.watermark() < from.watermark():
		return startBehind
	default:
		return startCaughtUp
	}
}

// begin finds where to start. Its errors are API errors: that is not known any more.
func (w *watcher[T]) begin(from version) error {
	now := w.cache.latest.Load()
	w.epoch, w.drains, w.floor, w.position = now.epoch, now.drains, from, now.events.end
	start := now.start(from, w.options.initial(from))
	w.on(start)
	switch start {
	case startUnsynced:
		return w.cache.NotReady()
	case startInitial:
		w.objects = now.trees
		w.floor = now.version
		if from > w.floor {
			w.floor = from.shared()
		}
	case startNow:
		w.floor = now.version
	case startOwn:
		w.position = now.events.after(from).start
	case startBehind, startCaughtUp:
		return w.beginElsewhere(from, now)
	default:
		return apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %s (%s)", from, now.version))
	}
	return nil
}

// beginElsewhere begins a watch whose client comes from another replica.
func (w *watcher[T]) beginElsewhere(from version, now *snapshot[T]) error {
	w.catchUpAfter, w.began, w.through, w.floor = from.watermark(), w.cache.Clock.Now(), now.version, from.shared()
	if w.options.Matches != nil || w.state == behind {
		w.told = map[string]bool{}
	}
	if w.catchUp = w.catchUpEvents(now); len(w.catchUp) > 0 {
		w.on(w.sending(now.version))
	}
	if len(w.catchUp) >= topCounter-int(w.floor.counter()) {
		return w.expired()
	}
	return nil
}

// sendFirst sends what the watch begins with.
func (w *watcher[T]) sendFirst() bool {
	if w.ctx.Err() != nil { // what it begins with may be incomplete
		return false
	}
	if w.state == initializing && !w.sendInitial() || len(w.catchUp) > 0 && !w.sendCatchUp() {
		return false
	}
	w.objects, w.catchUp = nil, nil
	return true
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
			if !w.scope.has(i.key) || until != "" && i.key >= until || w.ctx.Err() != nil {
				return false
			}
			if w.matches(i.object) {
				objects = append(objects, i.object)
			}
			return true
		})
		if w.ctx.Err() != nil {
			return false
		}
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
