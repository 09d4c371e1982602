// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"
)

// WatchOptions says what to watch, and from where.
type WatchOptions[T Object] struct {
	// Namespace limits the watch, and Name within it; empty: all.
	Namespace, Name string
	// Matches selects objects; nil: all.
	Matches func(T) bool
	// MatchesOwn is the part of Matches that the inputs of one stream alone decide, such as
	// labels: what it leaves out, no replica has ever shown as a match. nil: there is none.
	MatchesOwn func(T) bool
	// ResourceVersion to begin after. With "" or "0" all present objects come first.
	ResourceVersion string
	// SendInitialEvents overrides what follows from the version.
	SendInitialEvents *bool
	// AllowBookmarks lets bookmarks be sent, and the one that ends the initial events.
	AllowBookmarks bool
}

// initial reports whether a watch from a version begins with the present objects.
func (o *WatchOptions[T]) initial(from version) bool {
	if o.SendInitialEvents != nil {
		return *o.SendInitialEvents
	}
	return from == 0
}

// endsInitial reports whether a bookmark has to end the initial events, if there are any.
func (o *WatchOptions[T]) endsInitial() bool { return o.AllowBookmarks && o.SendInitialEvents != nil }

// Watch returns what happens from now on, or from a version on. An error is one of the
// request, or that the cache has not synced. Whatever else is wrong comes as an event of
// type ERROR, as clients expect it: they try again for ever after an HTTP error.
func (c *Cache[T]) Watch(ctx context.Context, o WatchOptions[T]) (watch.Interface, error) {
	from, err := parseVersion(o.ResourceVersion)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	w := newWatcher(ctx, c, o)
	if o.initial(from) {
		_, err = c.await(ctx, from, false)
	}
	if err == nil {
		err = w.begin(from)
	}
	switch {
	case apierrors.IsServiceUnavailable(err):
		w.cancel()
		return nil, err
	case err != nil:
		w.result <- watch.Event{Type: watch.Error, Object: statusOf(err)}
		close(w.result)
		w.cancel()
		w.on(stop)
		return w, nil
	}
	go w.run()
	return w, nil
}

// watcher is one watch. It reads the events of the cache at its own pace: one that is too
// slow finds that they have been dropped, and ends alone.
type watcher[T Object] struct {
	cache   *Cache[T]
	options WatchOptions[T]
	scope   scope
	state   watchState
	ctx     context.Context
	cancel  context.CancelFunc
	result  chan watch.Event

	epoch    int
	drains   int
	position uint64    // of the next event in the ring
	objects  *trees[T] // when the watch began, until it has begun
	// floor is the version that the client has; those of events are higher.
	floor version
	// What follows is of a watch that began at a version of unknown origin, with the watermark
	// catchUpAfter. CatchUp is what has become since of what inputs after that have touched. Of what
	// comes, inputs up to that are left out, until something of the object has been sent.
	catchUpAfter uint64
	catchUp      []catchUpEvent[T]
	through      version // that of a client that has seen all of these events
	// began is when, and seen is not lower than any revision that the client had seen then; 0: it
	// is not known.
	began time.Time
	seen  uint64
	// told has the keys of the objects of which the client has been sent an event, or would have been if
	// they matched; nil: they do not matter.
	told map[string]bool
}

// newWatcher returns a watch that has yet to begin.
func newWatcher[T Object](ctx context.Context, c *Cache[T], o WatchOptions[T]) *watcher[T] {
	w := &watcher[T]{
		cache:   c,
		options: o,
		scope:   scope{o.Namespace, o.Name},
		state:   starting,
		result:  make(chan watch.Event, 16),
	}
	w.ctx, w.cancel = context.WithCancel(ctx)
	return w
}

// adopt makes a watch that began elsewhere an own one, if all that the client had seen by then has
// been applied here, and all of that been sent.
func (w *watcher[T]) adopt(now *snapshot[T]) {
	if w.seen == 0 && now.asked.After(w.began) {
		w.seen = now.current
	}
	if w.seen != 0 && w.seen <= now.watermark {
		w.on(knowsAll)
	}
}

func (w *watcher[T]) run() {
	w.cache.watches.Add(1)
	defer w.cache.watches.Add(-1)
	w.cache.enter(w.scope)
	defer w.cache.leave(w.scope)
	defer w.on(stop)
	defer close(w.result)
	defer w.cancel()
	if !w.sendFirst() {
		return
	}
	utilflowcontrol.WatchInitialized(w.ctx)

	bookmark := w.cache.Clock.NewTimer(w.nextBookmark())
	defer bookmark.Stop()
	var leave <-chan time.Time
	for {
		at, more, ok := w.sendEvents()
		if !ok || !w.idle(at) {
			return
		}
		if leave == nil {
			leave = w.leave()
		}
		select {
		case <-more:
		case <-leave:
			w.sendProgress(at)
			return
		case <-bookmark.C():
			if !w.sendProgress(at) {
				return
			}
			bookmark.Reset(w.nextBookmark())
		case <-w.ctx.Done():
			return
		}
	}
}

// batch is how many events are taken at once.
const batch = 128

// next takes the next events. When there are none, more is closed once there are, and at
// is the version up to which the client then knows everything. It returns false when the
// watch has to end.
func (w *watcher[T]) next() (events []*event[T], at version, more <-chan struct{}, ok bool) {
	for {
		now := w.cache.latest.Load()
		switch {
		case w.lost(now) || w.position < now.events.start: // or too slow
			return nil, 0, nil, false
		case w.position < now.events.end:
			events = now.events.from(w.position, batch)
			w.position += uint64(len(events))
			return events, now.version, nil, true
		}
		if w.state.seenElsewhere() {
			w.adopt(now)
		}
		if more != nil {
			return nil, now.version, more, true
		}
		more = w.cache.more(w.scope) // there may be a snapshot since
	}
}

// leave returns when the watch has to end, as clients are to go to another replica; nil:
// they are not.
func (w *watcher[T]) leave() <-chan time.Time {
	now := w.cache.latest.Load()
	if w.drains == now.drains {
		return nil
	}
	return w.cache.Clock.After(wait.Jitter(now.spread, 1) - now.spread)
}

// lost reports whether it is no longer known what the client has to be sent: the cache
// has started over; or the client may have seen elsewhere what is not known here.
func (w *watcher[T]) lost(now *snapshot[T]) bool {
	return w.epoch != now.epoch || (now.alone() || w.catchUpAfter < now.relisted) && w.state.after(historyLost) == ended
}

// ResultChan implements watch.Interface.
func (w *watcher[T]) ResultChan() <-chan watch.Event { return w.result }

// Stop implements watch.Interface.
func (w *watcher[T]) Stop() { w.cancel() }
