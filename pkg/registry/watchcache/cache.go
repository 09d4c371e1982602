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
	// History is how long events are kept; two minutes by default.
	History time.Duration
	// MinEvents and MaxEvents bound how many are kept whatever their age.
	MinEvents, MaxEvents int
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
	// Timed tells that the object follows from the time at which it was computed too, so that
	// replicas may differ.
	Timed bool
}

// Cache holds the present objects, and the events of the last minutes. Apply and
// Progress are called by one goroutine at a time, in the order of what happened.
type Cache[T Object] struct {
	Config[T]

	mu      sync.RWMutex
	objects *btree.BTreeG[item[T]]
	events  history[T]
	// timed has the keys of the objects that follow from the time.
	timed    *btree.BTreeG[string]
	latest   *snapshot[T] // nil: something has changed since the last one
	synced   bool
	epoch    int // counts Replace, after which no watch goes on
	farewell int // counts Farewell
	spread   time.Duration
	gap      uint64 // the last Gap

	watermark uint64
	counter   uint64
	// floor is the watermark below which versions of other replicas are expired.
	floor uint64
	// since is the first version of this replica that it still remembers.
	since version
	// dropped is the highest cause of the events that have been dropped.
	dropped uint64
	// alone is set while versions of other replicas mean nothing, and local once it is known
	// that they never will: what is called the watermark then counts events.
	alone, local bool

	// current is a revision that is not lower than any that a client had seen when it was asked for.
	current uint64
	asked   time.Time

	wake    map[string]chan struct{} // by scope: closed when there is more
	watches atomic.Int64
	astray  atomic.Int64 // watches that wait for the watermark
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
	c.Tag = c.Tag & (1<<tagBits - 1) % straying
	out := &Cache[T]{Config: c, wake: map[string]chan struct{}{}}
	out.clear()
	return out
}

// clear lets go of all objects and events. The lock is held.
func (c *Cache[T]) clear() {
	c.objects = btree.NewG(32, func(a, b item[T]) bool { return a.key < b.key })
	c.timed = btree.NewOrderedG[string](32)
	c.events, c.latest = history[T]{}, nil
}

// change takes the lock, and returns what gives it back.
func (c *Cache[T]) change() func() {
	c.mu.Lock()
	c.latest = nil
	return c.mu.Unlock
}

// Replace sets all objects, as of a watermark. What was before the floor is not known.
// Watches that are open end.
func (c *Cache[T]) Replace(objects []T, watermark, floor uint64) {
	defer c.change()()
	c.clear()
	c.step() // a version from before must not name what is now
	c.progress(watermark)
	c.floor, c.gap, c.dropped = floor, 0, 0
	c.since = c.version()
	c.synced = true
	c.epoch++
	for _, o := range objects {
		c.objects.ReplaceOrInsert(item[T]{c.Key(o), c.stamp(o, c.since)})
	}
	c.notifyAll()
}

// Reset forgets everything, until the next Replace.
func (c *Cache[T]) Reset() {
	defer c.change()()
	c.synced = false
	c.epoch++
	c.clear()
	c.notifyAll()
}

// Apply publishes the changes that one input has caused. Watermark is that after the
// input. An input that touches an object changes it, even if nothing in it differs.
func (c *Cache[T]) Apply(watermark uint64, changes []Change[T]) {
	defer c.change()()
	now := c.Clock.Now()
	var none T
	for i, change := range changes {
		if i == len(changes)-1 {
			// Only who has seen all of them has seen the input.
			c.progress(watermark)
		}
		previous, had := c.objects.Get(item[T]{key: change.Key})
		if change.Object == none && !had {
			continue
		}
		c.step()
		e := event[T]{key: change.Key, previous: previous.object, cause: change.Cause, timed: change.Timed || change.Cause == Always, version: c.version(), at: now}
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
		e.sent = c.encodeOnce(&e)
		c.events.push(e)
		for _, scope := range []string{"", change.Key[:strings.IndexByte(change.Key, '/')+1], change.Key} {
			c.notify(scope)
		}
		if c.events.end%catchUp == 0 {
			c.notifyAll()
		}
	}
	c.progress(watermark)
	c.trim(now)
}

// catchUp is after how many events a watch that none of them concerns takes note of them,
// so that it is not taken for a slow one.
const catchUp = 512

// Farewell ends the watches that are open, each at any moment of some time, with a bookmark
// for those who want one: their clients go on from there at another replica.
func (c *Cache[T]) Farewell(spread time.Duration) {
	defer c.change()()
	c.farewell++
	c.spread = spread
	c.notifyAll()
}

// SetAlone notes that versions of other replicas mean nothing, or that they do again.
func (c *Cache[T]) SetAlone(alone bool) {
	defer c.change()()
	if alone = alone || c.local; c.alone != alone {
		c.alone = alone
		c.notifyAll()
	}
}

// SetLocal notes that versions of other replicas will never mean anything, nor those of this
// one to them. The watermark may then stand still for ever. Versions count events from now on,
// and say so, as a neighbour that does not know yet would take them for more than they are.
func (c *Cache[T]) SetLocal() {
	defer c.change()()
	c.setLocal()
}

func (c *Cache[T]) setLocal() {
	if !c.local {
		c.watermark, c.counter = c.watermark+maxWatermark+1, uint64(c.First)
		c.alone, c.local = true, true
		c.notifyAll()
	}
}

// Progress notes that all inputs up to a watermark have been applied.
func (c *Cache[T]) Progress(watermark uint64) {
	defer c.change()()
	c.progress(watermark)
}

// Gap notes that what was there and has gone before a revision is not known: a stream
// has been listed again at it. Watches that other replicas have begun end, as their
// clients may have seen what is now missing.
func (c *Cache[T]) Gap(revision uint64) {
	defer c.change()()
	c.floor, c.gap = max(c.floor, revision), max(c.gap, revision)
	c.notifyAll()
}

// Current notes that nothing that a client had seen at a time is beyond a revision. Once the
// watermark is there, watches that began before as those of other replicas go on as our own.
func (c *Cache[T]) Current(revision uint64, asked time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.current, c.asked = revision, asked
}

func (c *Cache[T]) progress(watermark uint64) {
	if watermark = min(watermark, maxWatermark); watermark > c.watermark && !c.local {
		c.watermark, c.counter = watermark, uint64(c.First)
		if c.astray.Load() > 0 {
			c.notifyAll()
		}
	}
}

// step begins another version. No two states of an object have the same: when there are no more at
// a watermark that does not move, as when a resource cannot be read for long, versions count events
// from then on. The lock is held.
func (c *Cache[T]) step() {
	switch c.counter++; {
	case c.counter < topCounter:
	case c.local:
		c.watermark, c.counter = c.watermark+1, uint64(c.First)
	default:
		klog.Background().Error(nil, "The watermark has not moved for too many changes: resource versions mean nothing to other replicas until a restart", "watermark", c.watermark)
		c.setLocal()
	}
}

// version is the present version. The lock is held.
func (c *Cache[T]) version() version { return newVersion(c.watermark, c.counter, c.Tag) }

// stamp returns a copy of an object with a version.
func (c *Cache[T]) stamp(o T, v version) T {
	out := c.Copy(o)
	out.SetResourceVersion(v.String())
	return out
}

// trim drops old events. The lock is held.
func (c *Cache[T]) trim(now time.Time) {
	most := max(c.MaxEvents, 2*c.objects.Len())
	for c.events.len() > most || c.events.len() > c.MinEvents && now.Sub(c.events.at(c.events.start).at) > c.History {
		e := c.events.pop()
		c.since, c.dropped = e.version, e.cause
	}
}

// notify wakes who waits for events of a scope. The lock is held.
func (c *Cache[T]) notify(scope string) {
	if ch, waiting := c.wake[scope]; waiting {
		close(ch)
		delete(c.wake, scope)
	}
}

// forget lets go of what a watch has waited for that has ended. Others that wait for the
// same look again.
func (c *Cache[T]) forget(s scope) {
	if s == (scope{}) {
		return // there is one of these
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.notify(s.String())
}

func (c *Cache[T]) notifyAll() {
	for scope := range c.wake {
		c.notify(scope)
	}
}

// Peek returns the current object of a key, which must not be changed.
func (c *Cache[T]) Peek(key string) (T, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	it, found := c.objects.Get(item[T]{key: key})
	return it.object, found
}

// Synced reports whether the cache has synced.
func (c *Cache[T]) Synced() bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.synced
}

// Stats tells the number of objects, of events that are kept, and of open watches.
func (c *Cache[T]) Stats() (objects, events, watches int) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.objects.Len(), c.events.len(), int(c.watches.Load())
}
