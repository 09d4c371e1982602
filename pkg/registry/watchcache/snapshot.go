package watchcache

import (
	"sync"

	"github.com/google/btree"
)

// moment is what a cache knew of versions at a moment, and its events. It never changes, so that
// it is read without the lock, however long that takes.
type moment[T Object] struct {
	events  events[T]
	version version
	// These are as in the cache.
	tag, first     uint16
	since          version
	floor, dropped uint64
	alone, synced  bool
	epoch          int
	farewell       int
}

// snapshot is a moment with the objects of then.
type snapshot[T Object] struct {
	moment[T]
	objects *btree.BTreeG[item[T]]
	timed   *btree.BTreeG[string] // the keys of those that follow from the time
	cloning sync.Mutex            // of objects, which is not for several at once
}

// now is the present moment. The lock is held.
func (c *Cache[T]) now() moment[T] {
	return moment[T]{
		events: c.events.all(), version: c.version(),
		tag: c.Tag, first: c.First, since: c.since, floor: c.floor, dropped: c.dropped, alone: c.alone, synced: c.synced,
		epoch: c.epoch, farewell: c.farewell,
	}
}

// snapshot returns what the cache is now. Those who ask before anything has changed get the same.
func (c *Cache[T]) snapshot() *snapshot[T] {
	c.mu.Lock() // cloning changes the original
	defer c.mu.Unlock()
	if c.latest == nil {
		c.latest = &snapshot[T]{moment: c.now(), objects: c.objects.Clone(), timed: c.timed.Clone()}
	}
	return c.latest
}

// own reports whether this replica has published a version, and remembers what came after.
// Another may have the same tag, so that it has to be one that was published here: that of an
// event, or of a watermark before the first.
func (m *moment[T]) own(v version) bool {
	if v.tag() != m.tag || v < m.since || v > m.version {
		return false
	}
	return v.counter() == uint64(m.first) || v == m.since || m.events.published(v)
}

// knowsAfter reports whether everything is known that came after a version of another
// replica.
func (m *moment[T]) knowsAfter(v version) bool {
	return !m.alone && !v.strays() && !v.local() && v.watermark() >= m.floor && v.watermark() >= m.dropped
}

// young reports whether this replica has yet to get to where it knows what came after any
// version, its own if others may have contributed to what it stands for included: lists
// are not in pages then, as no client could watch from their versions.
func (m *moment[T]) young() bool { return !m.alone && m.version.watermark() < m.floor }

// get returns an object.
func (s *snapshot[T]) get(key string) (T, bool) {
	it, found := s.objects.Get(item[T]{key: key})
	return it.object, found
}

// ascend calls f for the objects of a scope after a key.
func (s *snapshot[T]) ascend(within scope, after string, f func(T) bool) {
	ascend(s.objects, within, after, f)
}

func ascend[T Object](objects *btree.BTreeG[item[T]], within scope, after string, f func(T) bool) {
	start := within.String()
	if after != "" {
		start = max(start, after+"\x00")
	}
	objects.AscendGreaterOrEqual(item[T]{key: start}, func(i item[T]) bool {
		return within.has(i.key) && f(i.object)
	})
}

// collect returns the objects of a scope that match.
func (s *snapshot[T]) collect(within scope, matches func(T) bool) (out []T) {
	s.ascend(within, "", func(o T) bool {
		if matches == nil || matches(o) {
			out = append(out, o)
		}
		return true
	})
	return out
}

// asOf returns the objects as they were at a version of this replica.
func (s *snapshot[T]) asOf(v version) *btree.BTreeG[item[T]] {
	s.cloning.Lock()
	objects := s.objects.Clone()
	s.cloning.Unlock()
	var none T
	undone := map[string]bool{} // it was, before the first change, what it was at the version
	s.events.after(v).each(func(e *event[T]) {
		switch {
		case undone[e.key]:
			return
		case e.previous == none:
			objects.Delete(item[T]{key: e.key})
		default:
			objects.ReplaceOrInsert(item[T]{e.key, e.previous})
		}
		undone[e.key] = true
	})
	return objects
}
