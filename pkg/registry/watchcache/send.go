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

// sendEvents sends the events that there are. More is closed once there are others, and at is the
// version up to which the client then knows everything. It returns false when the watch has to end.
func (w *watcher[T]) sendEvents() (at version, more <-chan struct{}, ok bool) {
	for {
		var events []*event[T]
		if events, at, more, ok = w.next(); !ok || more != nil {
			return at, more, ok
		}
		for _, e := range events {
			if w.ctx.Err() != nil || !w.handle(e) {
				return 0, nil, false
			}
		}
	}
}

// handle sends what an event means to this watch.
func (w *watcher[T]) handle(e *event[T]) bool {
	if !w.scope.has(e.key) {
		return true
	}
	typ, o := w.tell(e)
	if typ == "" {
		return true
	}
	if !w.on(w.sending(e.version)) {
		return false
	}
	v, more := w.label(e.version)
	if !more {
		w.emit(watch.Event{Type: watch.Error, Object: statusOf(w.expired())})
		return false
	}
	var none T
	if sent := e.sent.Load(); sent != nil && (o == e.object || e.object == none) {
		return w.emitAs(typ, sent, v)
	}
	return w.send(typ, o, v)
}

// tell returns what the client is told of an event, and notes that it is; "": nothing.
func (w *watcher[T]) tell(e *event[T]) (watch.EventType, T) {
	var none T
	had, has := w.matches(e.previous), w.matches(e.object)
	if w.told != nil {
		switch {
		case w.told[e.key]: // of each event since
		case w.hasSeen(e):
			return "", none
		case !had && !has:
			// If another replica may have shown it as a match, it is sent as deleted.
			had = w.mayMatch(e.previous) || w.mayMatch(e.object)
		}
		w.told[e.key] = true
	}
	if has || e.previous == none {
		return eventType(had, has), e.object
	}
	return eventType(had, has), e.previous
}

// hasSeen reports whether the client has seen elsewhere what an event shows, if it has been sent nothing
// of the object here. Once this replica has caught up, a client that has all objects is sent every
// event, so that what it was told need not be held.
func (w *watcher[T]) hasSeen(e *event[T]) bool {
	return e.cause <= w.catchUpAfter && !e.timed && (w.options.Matches != nil || w.sending(e.version) == sendOlder)
}

// eventType returns what a client is told of an object that it had, or may have had, and has now; "":
// nothing.
func eventType(had, has bool) watch.EventType {
	switch {
	case had && has:
		return watch.Modified
	case has:
		return watch.Added
	case had:
		return watch.Deleted
	default:
		return ""
	}
}

// sending returns what sending something of a version is to the state. An object may lack what the client
// has seen of it elsewhere if it is older than the watermark that the client came with. The client is
// sent that as well in the end, but must not go on elsewhere before.
func (w *watcher[T]) sending(v version) watchInput {
	if v.watermark() < w.catchUpAfter {
		return sendOlder
	}
	return sendCurrent
}

// idle notes that everything up to a version has been sent, and tells the client if it waits for that.
func (w *watcher[T]) idle(at version) bool {
	before := w.state
	w.on(sentAll)
	switch {
	case before == initializing && w.options.endsInitial():
		return w.sendBookmark(at, true)
	case before == unresumable && w.options.AllowBookmarks && w.sending(at) == sendCurrent:
		return w.sendBookmark(at, false)
	default:
		return true
	}
}

// emitAs sends an object in a version, by an encoding that others can use too.
func (w *watcher[T]) emitAs(typ watch.EventType, o *encodedOnce[T], v version) bool {
	return w.emit(watch.Event{Type: typ, Object: o.as(v)})
}

// at returns the version that the client gets when it has seen everything up to another one. One
// whose watch began elsewhere has seen what this replica does not know, so that it gets none of
// this replica's own.
func (w *watcher[T]) at(v version) version {
	if w.state.seenElsewhere() {
		v = v.shared()
	}
	return max(v, w.floor)
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

// sendProgress tells the client, if it wants to know, up to which version it knows everything.
func (w *watcher[T]) sendProgress(at version) bool {
	return !w.options.AllowBookmarks || w.sendBookmark(w.upTo(at), false)
}

// upTo returns the present version, if there is nothing that the watch has yet to send, and else a version
// from before.
func (w *watcher[T]) upTo(before version) version {
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

func (w *watcher[T]) sendBookmark(v version, endOfInitial bool) bool {
	if w.sending(v) == sendCurrent { // an older one shows nothing
		w.on(sendCurrent)
	}
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
