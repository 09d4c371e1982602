// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

// How often bookmarks are sent, and how long before the end of a watch the last one.
const (
	bookmarkPeriod = time.Minute
	lastBookmark   = 2 * time.Second
)

// caughtUp returns the version of a bookmark: the present one, if there is nothing that
// the watch has yet to send.
func (w *watcher[T]) caughtUp(before version) version {
	now := w.cache.latest.Load()
	if w.lost(now) || w.position < now.events.start {
		return before
	}
	// Events of other scopes do not wake this watch.
	for at := w.position; at < now.events.end; at++ {
		if w.scope.has(now.events.at(at).key) {
			return before
		}
	}
	return now.version
}

// handle sends what an event means to this watch.
func (w *watcher[T]) handle(e *event[T]) bool {
	if !w.scope.has(e.key) {
		return true
	}
	had, has := w.membership(e)
	var none T
	typ, o := watch.Deleted, e.previous
	switch {
	case has && had:
		typ, o = watch.Modified, e.object
	case has:
		typ, o = watch.Added, e.object
	case !had:
		return true
	case e.previous == none:
		o = e.object
	}
	if e.version.watermark() < w.catchUpAfter {
		// The object may lack what the client has seen of it elsewhere. It is sent that as
		// well in the end, but must not go on elsewhere before.
		w.note(shownOlder)
	}
	v, more := w.label(e.version)
	if !more {
		w.emit(watch.Event{Type: watch.Error, Object: statusOf(w.expired())})
		return false
	}
	if sent := e.sent.Load(); sent != nil && (o == e.object || e.object == none) {
		return w.emitAs(typ, sent, v)
	}
	return w.send(typ, o, v)
}

// membership reports whether the client has an object as a match, and is to have it after an event; neither: the event
// is not for it.
func (w *watcher[T]) membership(e *event[T]) (had, has bool) {
	had, has = w.matches(e.previous), w.matches(e.object)
	if w.options.Matches == nil && e.version.watermark() >= w.catchUpAfter {
		w.members = nil // whatever comes is beyond, and a client that has all objects is told of it
	}
	if w.members == nil {
		return had, has
	}
	member, known := w.members[e.key]
	switch {
	case !known && e.cause <= w.catchUpAfter && !e.timed:
		return false, false // the client has seen it
	case known:
		had = member
	case !had && !has:
		// If another replica may have shown it as a match, it is sent as deleted.
		had = w.mayMatch(e.previous) || w.mayMatch(e.object)
	}
	w.members[e.key] = has
	return had, has
}

// emitAs sends an object in a version, by an encoding that others can use too.
func (w *watcher[T]) emitAs(typ watch.EventType, o *encodedOnce[T], v version) bool {
	return w.emit(watch.Event{Type: typ, Object: o.as(v)})
}

// at returns the version that the client gets when it has seen everything up to another one. One
// whose watch began elsewhere has seen what this replica does not know, so that it gets none of
// this replica's own.
func (w *watcher[T]) at(v version) version {
	if w.origin == originOwn {
		return max(v, w.floor)
	}
	if v.watermark() >= w.catchUpAfter {
		w.note(shownAll)
	}
	return max(v.shared(), w.floor)
}

// label returns the version of an object that is sent, which is higher than all before: clients
// take two states of one version for the same. It returns false when there is none.
func (w *watcher[T]) label(v version) (version, bool) {
	more := true
	if v = w.at(v); v == w.floor {
		v, more = v.next()
	}
	w.floor = v
	return v, more
}

// expired is the answer when no version is left for what has to be sent.
func (w *watcher[T]) expired() error {
	return apierrors.NewResourceExpired(fmt.Sprintf("too many changes since resource version %s: list again", w.floor))
}

// send sends a copy of an object with a version; encoding changes what it encodes.
func (w *watcher[T]) send(typ watch.EventType, o T, v version) bool {
	return w.emit(watch.Event{Type: typ, Object: w.cache.stamp(o, v)})
}

func (w *watcher[T]) sendBookmark(v version, endOfInitial bool) bool {
	o := w.cache.New()
	w.floor = w.at(v)
	o.SetResourceVersion(w.floor.String())
	if endOfInitial {
		if err := storage.AnnotateInitialEventsEndBookmark(o); err != nil {
			return false
		}
	}
	return w.emit(watch.Event{Type: watch.Bookmark, Object: o})
}

func (w *watcher[T]) emit(e watch.Event) bool {
	select {
	case w.result <- e:
		return true
	case <-w.ctx.Done():
		return false
	}
}

// nextBookmark returns after which time to send a bookmark: about every minute, and
// shortly before the deadline, so that the client knows where to go on.
func (w *watcher[T]) nextBookmark() time.Duration {
	next := wait.Jitter(bookmarkPeriod*9/10, 1./9)
	if deadline, ok := w.ctx.Deadline(); ok {
		if left := deadline.Sub(w.cache.Clock.Now()) - lastBookmark; left > 0 && left < next {
			return left
		}
	}
	return next
}

// statusOf returns an API error as watches send it.
func statusOf(err error) runtime.Object {
	var known apierrors.APIStatus
	if !errors.As(err, &known) {
		known = apierrors.NewInternalError(err)
	}
	status := known.Status()
	return &status
}
