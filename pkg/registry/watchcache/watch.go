package watchcache

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
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

// How often bookmarks are sent, and how long before the end of a watch the last one.
const (
	bookmarkPeriod = time.Minute
	lastBookmark   = 2 * time.Second
)

// Watch returns what happens from now on, or from a version on. An error is one of the
// request, or that the cache has not synced. Whatever else is wrong comes as an event of
// type ERROR, as clients expect it: they try again for ever after an HTTP error.
func (c *Cache[T]) Watch(ctx context.Context, o WatchOptions[T]) (watch.Interface, error) {
	from, err := parseVersion(o.ResourceVersion)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	w := &watcher[T]{
		cache:   c,
		options: o,
		result:  make(chan watch.Event, 16),
		initial: from == 0 && o.SendInitialEvents == nil || o.SendInitialEvents != nil && *o.SendInitialEvents,
		scope:   scope{o.Namespace, o.Name},
	}
	w.ctx, w.cancel = context.WithCancel(ctx)
	if w.initial {
		err = c.await(ctx, from)
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
	initial bool
	ctx     context.Context
	cancel  context.CancelFunc
	result  chan watch.Event

	epoch    int
	farewell int
	position uint64 // of the next event in the ring
	snapshot []T    // initial objects that have yet to be sent
	// floor is the version that the client has; those of events are never lower.
	floor   version
	pending bool // the bookmark that ends the initial events has yet to be sent
	// foreign is set when the watch began at a version of unknown origin. News is what has
	// become since of what inputs beyond its watermark have touched. Of what comes, inputs up
	// to that are left out, until something of the object has been sent.
	foreign bool
	beyond  uint64
	news    []watch.Event
	astray  bool // see stray
	// members are the objects that were sent (true) or sent as deleted (false), by key.
	members map[string]bool
}

// begin finds where to start. Its errors are API errors: that is not known any more.
func (w *watcher[T]) begin(from version) error {
	c := w.cache
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.synced {
		return c.NotReady()
	}
	w.epoch, w.farewell, w.floor = c.epoch, c.farewell, from
	if w.initial {
		w.position = c.events.end()
		w.snapshot = c.collect(w.scope, w.options.Matches)
		w.floor = c.version()
		if from > w.floor {
			w.floor = from.shared()
		}
		w.pending = w.options.AllowBookmarks && w.options.SendInitialEvents != nil
		return nil
	}
	switch {
	case from == 0:
		w.position = c.events.end()
		w.floor = c.version()
	case c.own(from):
		w.position = c.events.after(from)
	case c.published(from) && from > c.since: // its counter had stopped
		w.position = c.events.after(from - 1<<tagBits)
	case c.knowsAfter(from):
		w.foreign, w.beyond, w.members = true, from.watermark(), map[string]bool{}
		w.floor = from.shared()
		w.position = c.events.end()
		w.news = w.newsOf()
		if len(w.news) > 0 && c.watermark < w.beyond {
			w.stray()
		}
		for i := range w.news {
			if i == len(w.news)-1 {
				w.floor = w.label(c.version()) // only who has seen all of them has seen that
			}
			w.news[i].Object.(T).SetResourceVersion(w.floor.String())
		}
	default:
		return apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %s (%s)", from, c.version()))
	}
	return nil
}

// newsOf returns what a client that comes from elsewhere may not have seen, one event for
// each object: what has become of those that inputs beyond a watermark have touched, and of
// those that follow from the time, as there it may have been, or be, at another. What they
// have been meanwhile is left out: the client may have seen later states, and must not be
// shown earlier ones. The lock is held.
func (w *watcher[T]) newsOf() (out []watch.Event) {
	c := w.cache
	var none T
	type change struct {
		news      bool
		had, held bool // the client had it as a match; or may have had it as one
		before    T
		last      T
	}
	changes := map[string]*change{}
	of := func(key string) *change {
		if changes[key] == nil {
			changes[key] = &change{}
		}
		return changes[key]
	}
	for key := range c.timed {
		if w.scope.has(key) {
			of(key).news = true
		}
	}
	for _, e := range c.events.since(0) {
		if !w.scope.has(e.key) {
			continue
		}
		switch k, beyond := of(e.key), e.cause != Always && e.cause > w.beyond; {
		case !beyond && k.last == none:
			k.news = e.timed
		default:
			if k.last == none {
				k.before, k.had = e.previous, w.matches(e.previous)
			}
			k.news, k.held = true, k.held || w.mayMatch(e.previous) || w.mayMatch(e.object)
			if k.last = e.object; k.last == none {
				k.last = e.previous
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(changes)) {
		k := changes[key]
		it, found := c.objects.Get(item[T]{key: key})
		has := found && w.matches(it.object)
		if !k.news || !found && k.last == none {
			continue
		}
		o := it.object
		switch {
		case !has && k.had:
			o = k.before // as it was when it matched
		case !found:
			o = k.last
		}
		if k.last == none {
			k.had, k.held = has, w.mayMatch(o)
		}
		w.members[key] = has
		typ := watch.Deleted
		switch {
		case has && k.had:
			typ = watch.Modified
		case has:
			typ = watch.Added
		case !k.held:
			continue
		}
		out = append(out, watch.Event{Type: typ, Object: c.Copy(o)})
	}
	return out
}

// matches tells whether the watch is of an object, and mayMatch whether another replica may
// have shown it so: it has applied the inputs in another order.
func (w *watcher[T]) matches(o T) bool {
	var none T
	return o != none && (w.options.Matches == nil || w.options.Matches(o))
}

func (w *watcher[T]) mayMatch(o T) bool {
	var none T
	return o != none && (w.options.MatchesOwn == nil || w.options.MatchesOwn(o))
}

// own tells whether this replica has published a version, of one state, and remembers what
// came after.
func (c *Cache[T]) own(v version) bool { return v.counter() != maxCounter && c.published(v) }

// published tells whether this replica has published a version that it remembers. Another
// may have the same tag, so that it has to be one that was published here: that of an event,
// or of a watermark before the first.
func (c *Cache[T]) published(v version) bool {
	if v.tag() != c.Tag || v < c.since || v > c.version() {
		return false
	}
	return v.counter() == uint64(c.First) || v == c.since || c.events.published(v)
}

// knowsAfter tells whether everything is known that came after a version of another
// replica.
func (c *Cache[T]) knowsAfter(v version) bool {
	return !c.alone && !v.strays() && !v.local() && v.watermark() >= c.floor && v.watermark() >= c.dropped
}

// collect returns the objects of a scope that match. The lock is held.
func (c *Cache[T]) collect(s scope, matches func(T) bool) []T {
	var out []T
	c.ascend(c.objects, s, "", func(o T) bool {
		if matches == nil || matches(o) {
			out = append(out, o)
		}
		return true
	})
	return out
}

func (w *watcher[T]) run() {
	w.cache.watches.Add(1)
	defer w.cache.watches.Add(-1)
	defer w.cache.forget(w.scope)
	defer w.foundAgain()
	defer close(w.result)
	defer w.cancel()
	for _, o := range w.snapshot {
		if !w.emit(watch.Event{Type: watch.Added, Object: w.cache.Copy(o)}) {
			return
		}
	}
	w.snapshot = nil
	for _, e := range w.news {
		if !w.emit(e) {
			return
		}
	}
	w.news = nil
	utilflowcontrol.WatchInitialized(w.ctx)

	bookmark := w.cache.Clock.NewTimer(w.nextBookmark())
	defer bookmark.Stop()
	var leave <-chan time.Time
	for {
		events, at, more, ok := w.next()
		if !ok {
			return
		}
		for i := range events {
			if !w.handle(&events[i]) {
				return
			}
		}
		if w.pending && more != nil {
			w.pending = false
			if !w.sendBookmark(at, true) {
				return
			}
		}
		if more == nil {
			continue
		}
		if w.astray && w.options.AllowBookmarks && at.watermark() >= w.beyond && !w.sendBookmark(at, false) {
			return
		}
		if leave == nil {
			leave = w.leave()
		}
		select {
		case <-more:
		case <-leave:
			if w.options.AllowBookmarks && !w.pending {
				w.sendBookmark(w.caughtUp(at), false)
			}
			return
		case <-bookmark.C():
			if w.options.AllowBookmarks && !w.pending && !w.sendBookmark(w.caughtUp(at), false) {
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
func (w *watcher[T]) next() (events []event[T], at version, more <-chan struct{}, ok bool) {
	c := w.cache
	c.mu.Lock()
	defer c.mu.Unlock()
	if w.lost() || w.position < c.events.start() {
		return nil, 0, nil, false // or too slow
	}
	at = c.version()
	if w.position < c.events.end() {
		events = append(events, c.events.from(w.position, batch)...)
		w.position += uint64(len(events))
		return events, at, nil, true
	}
	ch, waiting := c.wake[w.scope.String()]
	if !waiting {
		ch = make(chan struct{})
		c.wake[w.scope.String()] = ch
	}
	return nil, at, ch, true
}

// leave returns when the watch has to end, as clients are to go to another replica; nil:
// they are not.
func (w *watcher[T]) leave() <-chan time.Time {
	c := w.cache
	c.mu.RLock()
	defer c.mu.RUnlock()
	if w.farewell == c.farewell {
		return nil
	}
	return c.Clock.After(wait.Jitter(c.spread, 1) - c.spread)
}

// lost tells whether it is not known any more what the client has to be sent: the cache
// has begun anew; or the client may have seen elsewhere what is not known here. The lock
// is held.
func (w *watcher[T]) lost() bool {
	c := w.cache
	return w.epoch != c.epoch || w.foreign && (c.alone || w.beyond < c.gap)
}

// caughtUp returns the version of a bookmark: the present one, if there is nothing that
// the watch has yet to send.
func (w *watcher[T]) caughtUp(before version) version {
	c := w.cache
	c.mu.RLock()
	defer c.mu.RUnlock()
	if w.lost() {
		return before
	}
	// Events of other scopes do not wake this watch.
	for _, e := range c.events.since(w.position) {
		if w.scope.has(e.key) {
			return before
		}
	}
	return c.version()
}

// handle sends what an event means to this watch.
func (w *watcher[T]) handle(e *event[T]) bool {
	if !w.scope.has(e.key) {
		return true
	}
	var none T
	had, has := w.matches(e.previous), w.matches(e.object)
	if w.foreign {
		member, known := w.members[e.key]
		switch {
		case !known && e.cause <= w.beyond && !e.timed:
			return true // the client has seen it
		case known:
			had = member
		case !had && !has:
			// If another replica may have shown it as a match, it is sent as deleted.
			had = w.mayMatch(e.previous) || w.mayMatch(e.object)
		}
		w.members[e.key] = has
	}
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
	if w.foreign && e.version.watermark() < w.beyond {
		// The object may lack what the client has seen of it elsewhere. It is sent that as
		// well in the end, but must not go on elsewhere before.
		w.stray()
	}
	v := w.label(e.version)
	if e.sent != nil && (o == e.object || e.object == none) {
		switch v {
		case e.version:
			return w.emit(watch.Event{Type: typ, Object: e.sent})
		case e.version.shared():
			return w.emit(watch.Event{Type: typ, Object: w.cache.inShared(e)})
		}
	}
	return w.send(typ, o, v)
}

// label returns the version that the client gets. One whose watch began elsewhere has
// seen what this replica does not know, so that it gets none of this replica's own.
func (w *watcher[T]) label(v version) version {
	if w.foreign {
		if w.astray && v.watermark() >= w.beyond {
			w.floor = w.floor.shared()
			w.foundAgain()
		}
		v = v.shared()
	}
	return max(v, w.floor)
}

// stray notes that the client has been shown something older than it has seen before. It
// gets versions with which it cannot go on, until it has been sent all of that here too.
func (w *watcher[T]) stray() {
	if !w.astray {
		w.astray, w.floor = true, w.floor.stray()
		w.cache.astray.Add(1)
	}
}

func (w *watcher[T]) foundAgain() {
	if w.astray {
		w.astray = false
		w.cache.astray.Add(-1)
	}
}

// send sends a copy of an object with a version; encoding changes what it encodes.
func (w *watcher[T]) send(typ watch.EventType, o T, v version) bool {
	return w.emit(watch.Event{Type: typ, Object: w.cache.stamp(o, v)})
}

func (w *watcher[T]) sendBookmark(v version, endOfInitial bool) bool {
	o := w.cache.New()
	o.SetResourceVersion(w.label(v).String())
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

// ResultChan is part of watch.Interface.
func (w *watcher[T]) ResultChan() <-chan watch.Event { return w.result }

// Stop is part of watch.Interface.
func (w *watcher[T]) Stop() { w.cancel() }

// statusOf returns an API error as watches send it.
func statusOf(err error) runtime.Object {
	var known apierrors.APIStatus
	if !errors.As(err, &known) {
		known = apierrors.NewInternalError(err)
	}
	status := known.Status()
	return &status
}
