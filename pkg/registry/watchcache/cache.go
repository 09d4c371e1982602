// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/btree"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// Object is what a cache holds: a pointer to an API object.
type Object interface {
	comparable
	runtime.Object
	metav1.Object
}

// Config is what a cache is made from.
type Config[T Object] struct {
	// New returns an empty object, for bookmarks.
	New func() T
	// Copy returns a shallow copy of an object. Objects in the cache are never changed.
	Copy func(T) T
	// Key returns the key of an object, NAMESPACE/NAME.
	Key func(T) string
	// NotReady returns the answer until the cache has synced.
	NotReady func() *apierrors.StatusError
	Clock    clock.WithTicker
	// Tag is the tag of this replica's versions, and First where their counter begins at each
	// watermark. Random ones tell them from those of others, as far as the lowest 6 bits of the
	// one and all 16 of the other can. (The highest two tags belong to no replica.)
	Tag, First uint16
	// Epoch is where local versions begin (see Cache.SetLocal). A random one tells them from those of others: tag and counter do
	// not, as replicas are likely to become local at the same watermark, and each then counts through all counters there.
	Epoch uint64
	// History is how long events are kept; two minutes by default.
	History time.Duration
	// MinEvents and MaxEvents bound how many are kept whatever their age, and MaxBytes about how much
	// memory they keep besides that of the present objects, whatever their number; 32 MiB by default.
	MinEvents, MaxEvents, MaxBytes int
	// Size returns about how many bytes an object holds that it does not share with another state of
	// it, which may be nil. Nil: its size does not count.
	Size func(o, other T) int
}

// Always is the cause of a change that no input has caused, but time alone.
const Always = ^uint64(0)

// Change is an object that has changed, or has gone.
type Change[T Object] struct {
	Key    string
	Object T // nil: it has gone
	// Cause is the highest revision of all inputs that the object is now computed from,
	// those that say that something is absent included; or Always. It may be higher than
	// that of the input that made the change: what one input has brought may show only
	// when another, older one arrives.
	Cause uint64
	// Timed: the object follows from the time too, or from what a replica has seen. Another one that has applied
	// the same inputs may show something else, so that clients that come from there are sent the object. An object
	// of which replicas may differ has to be timed on all of them.
	Timed bool
}

// Cache holds the present objects, and the events of the last minutes. Apply and
// Progress are called by one goroutine at a time, in the order of what happened.
//
// Who changes it prepares what is next, and then puts a snapshot in the place of the last one:
// readers see all of a change or nothing, and never wait for one.
type Cache[T Object] struct {
	Config[T]

	latest atomic.Pointer[snapshot[T]] // what readers see

	writing sync.Mutex // is held for changes, and guards what follows
	now     moment[T]
	objects *btree.BTreeG[item[T]]
	timed   *btree.BTreeG[string] // the keys of the objects that are timed
	events  history[T]
	edited  bool                // objects or timed, since the last snapshot
	touched map[string]struct{} // the scopes of the events since then
	all     bool                // every watch has to look, for another reason
	moved   bool                // the watermark has

	mu      sync.Mutex          // is held for looking up who waits, and guards what follows
	waiting map[string]*waiting // by scope
	reached chan struct{}       // if it is there, it is closed with the next snapshot

	beginning beginning[T]

	watches     atomic.Int64
	unresumable atomic.Int64 // watches that wait for the watermark
}

// waiting are the watches of a scope.
type waiting struct {
	watches int
	more    chan struct{} // closed when there is more; nil: none waits
}

type item[T Object] struct {
	key    string
	object T
}

// New returns a cache that is empty and has not synced.
func New[T Object](c Config[T]) *Cache[T] {
	if c.History == 0 {
		c.History = 2 * time.Minute
	}
	if c.MinEvents == 0 {
		c.MinEvents = 1024
	}
	if c.MaxEvents == 0 {
		c.MaxEvents = 16 * 1024
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = 32 << 20
	}
	if c.Size == nil {
		c.Size = func(_, _ T) int { return 0 }
	}
	c.Tag = c.Tag & (1<<tagBits - 1) % unresumableTag
	out := &Cache[T]{Config: c, waiting: map[string]*waiting{}, touched: map[string]struct{}{}, beginning: beginning[T]{config: &c}}
	out.change(func() {
		out.now.tag, out.now.first = c.Tag, c.First
		out.clear()
	})
	return out
}

// degree is that of the trees: nodes have up to twice as many items, and the first change of one
// after a snapshot copies it.
const degree = 16

// clear lets go of all objects and events. It is part of a change.
func (c *Cache[T]) clear() {
	c.objects = btree.NewG(degree, func(a, b item[T]) bool { return a.key < b.key })
	c.timed = btree.NewOrderedG[string](degree)
	c.events, c.edited = history[T]{}, true
}

// change calls f, which prepares what is next, and then shows that to readers.
func (c *Cache[T]) change(f func()) {
	c.writing.Lock()
	f()
	c.publish()
	var touched map[string]struct{}
	if len(c.touched) > 0 { // it is read without the lock: what comes next is noted in another
		touched, c.touched = c.touched, map[string]struct{}{}
	}
	all, moved := c.all, c.moved
	c.all, c.moved = false, false
	c.writing.Unlock()
	// A watch that has become unresumable since the snapshot was there has seen it.
	c.wake(touched, all || moved && c.unresumable.Load() > 0)
}

// Replace sets all objects, as of a watermark, and the keys of those that are timed (see Change). What was before the
// floor is not known. Watches that are open end. The objects are the cache's from then on.
func (c *Cache[T]) Replace(objects []T, timed []string, watermark, floor uint64) {
	c.change(func() {
		c.clear()
		c.step() // a version from before must not name what is now
		c.progress(watermark)
		c.now.floor, c.now.relisted, c.now.dropped = floor, 0, 0
		c.now.since = c.now.version()
		c.on(replaceAll)
		c.now.epoch++
		version := c.now.since.String()
		for _, o := range objects {
			o.SetResourceVersion(version)
			c.objects.ReplaceOrInsert(item[T]{c.Key(o), o})
		}
		for _, key := range timed {
			c.timed.ReplaceOrInsert(key)
		}
		c.all = true
	})
}

// Reset forgets everything, until the next Replace.
func (c *Cache[T]) Reset() {
	c.change(func() {
		c.on(forgetAll)
		c.now.epoch++
		c.clear()
		c.all = true
	})
}

// Apply publishes the changes that one input has caused, or a part of them: then the watermark is
// that from before the input. Watermark is that after the input. An input that touches an object
// changes it, even if nothing in it differs.
func (c *Cache[T]) Apply(watermark uint64, changes []Change[T]) {
	c.change(func() {
		at := c.Clock.Now()
		for i := range changes {
			if i == len(changes)-1 {
				// Only who has seen all of them has seen the input.
				c.progress(watermark)
			}
			c.apply(&changes[i], at)
		}
		c.progress(watermark)
		c.trim(at)
	})
}

// apply makes an event of a change.
func (c *Cache[T]) apply(change *Change[T], at time.Time) {
	var none T
	previous, had := c.objects.Get(item[T]{key: change.Key})
	if change.Object == none && !had {
		return
	}
	c.step()
	c.edited = true
	e := &event[T]{key: change.Key, previous: previous.object, timed: change.Timed || change.Cause == Always, version: c.now.version(), at: at}
	e.cause = c.events.causeOf(change.Cause)
	if change.Object == none {
		c.objects.Delete(previous)
	} else {
		e.object = c.stamp(change.Object, e.version)
		c.objects.ReplaceOrInsert(item[T]{change.Key, e.object})
	}
	if e.timed && e.object != none {
		c.timed.ReplaceOrInsert(e.key)
	} else {
		c.timed.Delete(e.key)
	}
	e.sent.Store(c.encodeOnce(e))
	if e.previous != none {
		e.size = c.Size(e.previous, e.object) // the object itself is there all the same
	}
	c.events.push(e, c.Size(e.sent.Load().object, none))
	for _, scope := range []string{"", change.Key[:strings.IndexByte(change.Key, '/')+1], change.Key} {
		c.touched[scope] = struct{}{}
	}
	c.all = c.all || c.events.end%noticeEvery == 0
}

// noticeEvery is after how many events a watch that none of them concerns takes note of them,
// so that it is not taken for a slow one.
const noticeEvery = 512

// Drain ends the watches that are open, each at any moment of some time, with a bookmark
// for those who want one: their clients go on from there at another replica.
func (c *Cache[T]) Drain(spread time.Duration) {
	c.change(func() {
		c.now.drains++
		c.now.spread = spread
		c.all = true
	})
}

// SetAlone notes that versions of other replicas mean nothing, or that they do again.
func (c *Cache[T]) SetAlone(alone bool) {
	c.change(func() {
		if alone {
			c.on(doNotCompare)
		} else {
			c.on(compare)
		}
	})
}

// SetLocal notes that versions of other replicas will never mean anything, nor those of this
// one to them. The watermark may then stand still for ever. Versions count events from now on,
// and say so, as a neighbour that does not know yet would take them for more than they are.
func (c *Cache[T]) SetLocal() { c.change(c.setLocal) }

func (c *Cache[T]) setLocal() {
	if c.on(neverCompare) {
		const room = maxWatermark / 2 // to count
		c.now.watermark, c.now.counter = maxWatermark+1+(c.now.watermark+c.Epoch)%room, uint64(c.First)
	}
}

// Progress notes that all inputs up to a watermark have been applied.
func (c *Cache[T]) Progress(watermark uint64) { c.change(func() { c.progress(watermark) }) }

// Relisted notes that what was there and has gone before a revision is not known: a stream
// has been listed again at it. Watches that other replicas have begun end, as their
// clients may have seen what is now missing.
func (c *Cache[T]) Relisted(revision uint64) {
	c.change(func() {
		c.now.floor, c.now.relisted, c.all = max(c.now.floor, revision), max(c.now.relisted, revision), true
	})
}

// Current notes that nothing that a client had seen at a time is beyond a revision. Once the
// watermark is there, watches that began before as those of other replicas go on as our own.
func (c *Cache[T]) Current(revision uint64, asked time.Time) {
	c.change(func() { c.now.current, c.now.asked = revision, asked })
}

// progress is part of a change, and so is what follows.
func (c *Cache[T]) progress(watermark uint64) {
	if watermark = min(watermark, maxWatermark); watermark > c.now.watermark && c.now.versions != versionsLocal {
		c.now.watermark, c.now.counter, c.moved = watermark, uint64(c.First), true
	}
}

// step begins another version. No two states of an object have the same: when there are no more at
// a watermark that does not move, as when a resource cannot be read for long, versions count events
// from then on.
func (c *Cache[T]) step() {
	switch c.now.counter++; {
	case c.now.counter < topCounter:
	case c.now.versions == versionsLocal:
		c.now.watermark, c.now.counter = c.now.watermark+1, uint64(c.First)
	default:
		klog.Background().Error(nil, "The watermark has not moved for too many changes: resource versions mean nothing to other replicas until a restart", "watermark", c.now.watermark)
		c.setLocal()
	}
}

// stamp returns a copy of an object with a version.
func (c *Cache[T]) stamp(o T, v version) T {
	out := c.Copy(o)
	out.SetResourceVersion(v.String())
	return out
}

// trim drops old events.
func (c *Cache[T]) trim(now time.Time) {
	most := max(c.MaxEvents, 2*c.objects.Len())
	for n := len(c.events.kept); n > most || n > 0 && c.events.bytes > c.MaxBytes || n > c.MinEvents && now.Sub(c.events.kept[0].at) > c.History; n-- {
		e := c.events.pop()
		c.now.since, c.now.dropped = e.version, e.cause
	}
}

// enter notes that a watch of a scope has begun, and leave that it has ended.
func (c *Cache[T]) enter(s scope) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.waiting[s.String()]
	if w == nil {
		w = &waiting{}
		c.waiting[s.String()] = w
	}
	w.watches++
}

func (c *Cache[T]) leave(s scope) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w := c.waiting[s.String()]; w.watches > 1 {
		w.watches--
	} else {
		delete(c.waiting, s.String())
	}
}

// more returns what is closed when there is more for watches of a scope than in the snapshots that
// can be seen by now.
func (c *Cache[T]) more(s scope) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.waiting[s.String()]
	if w.more == nil {
		w.more = make(chan struct{})
	}
	return w.more
}

// next returns what is closed with the next snapshot.
func (c *Cache[T]) next() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reached == nil {
		c.reached = make(chan struct{})
	}
	return c.reached
}

// wake wakes who waits for a snapshot, and the watches of some scopes, or all.
func (c *Cache[T]) wake(scopes map[string]struct{}, all bool) {
	for _, ch := range c.awake(scopes, all) {
		close(ch)
	}
}

// awake returns what those wait for who have to be woken. They wait for it no longer.
func (c *Cache[T]) awake(scopes map[string]struct{}, all bool) (chs []chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reached != nil {
		chs = append(chs, c.reached)
		c.reached = nil
	}
	take := func(w *waiting) {
		if w != nil && w.more != nil {
			chs = append(chs, w.more)
			w.more = nil
		}
	}
	if all || len(c.waiting) < len(scopes) {
		for scope, w := range c.waiting {
			if _, touched := scopes[scope]; all || touched {
				take(w)
			}
		}
		return chs
	}
	for scope := range scopes {
		take(c.waiting[scope])
	}
	return chs
}

// Peek returns the current object of a key, which must not be changed.
func (c *Cache[T]) Peek(key string) (T, bool) { return c.latest.Load().get(key) }

// Each calls f for each current object, which must not be changed. It holds no lock.
func (c *Cache[T]) Each(f func(T)) {
	c.latest.Load().objects.Ascend(func(i item[T]) bool {
		f(i.object)
		return true
	})
}

// Synced reports whether the cache has synced.
func (c *Cache[T]) Synced() bool { return c.latest.Load().synced }

// AverageSize asks so many objects, or fewer if they have so many bytes already.
const (
	sampled      = 64
	sampledBytes = 1 << 20
)

// AverageSize returns about how many bytes an object has, by some of them; 0: there is none.
func (c *Cache[T]) AverageSize() int {
	var none T
	n, size := 0, 0
	c.latest.Load().objects.Ascend(func(i item[T]) bool {
		n, size = n+1, size+c.Size(i.object, none)
		return n < sampled && size < sampledBytes
	})
	return size / max(n, 1)
}

// Stats tells the number of objects, of events that are kept, and of open watches.
func (c *Cache[T]) Stats() (objects, events, watches int) {
	now := c.latest.Load()
	return now.objects.Len(), len(now.events.kept), int(c.watches.Load())
}
