// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"sync"
	"time"

	"github.com/google/btree"
)

// moment is what a cache knows of versions at a moment.
type moment[T Object] struct {
	watermark, counter uint64
	tag, first         uint16
	// floor is the watermark below which versions of other replicas are expired.
	floor uint64
	// since is the first version of this replica that it still remembers.
	since version
	// dropped is the highest cause of the events that have been dropped.
	dropped  uint64
	relisted uint64 // the last Relisted
	cacheState
	epoch  int // counts Replace, after which no watch goes on
	drains int // counts Drain
	spread time.Duration
	// current is a revision that is not lower than any that a client had seen when it was asked for.
	current uint64
	asked   time.Time
}

// version is the version of the moment.
func (m *moment[T]) version() version { return newVersion(m.watermark, m.counter, m.tag) }

// snapshot is a moment, with the objects and the events of then. It never changes, so that it is
// read without a lock, however long that takes.
type snapshot[T Object] struct {
	moment[T]
	version version
	events  events[T]
	*trees[T]
}

// trees are the objects of a snapshot, and of the next ones in which they are the same.
type trees[T Object] struct {
	objects *btree.BTreeG[item[T]]
	timed   *btree.BTreeG[string] // the keys of those that are timed
	cloning sync.Mutex            // of objects, which is not for several at once
}

// publish shows readers what the cache is now. It is part of a change.
func (c *Cache[T]) publish() {
	next := &snapshot[T]{moment: c.now, version: c.now.version(), events: c.events.events}
	if c.edited {
		next.trees, c.edited = &trees[T]{objects: c.objects.Clone(), timed: c.timed.Clone()}, false
	} else {
		next.trees = c.latest.Load().trees
	}
	c.latest.Store(next)
}

// own reports whether this replica has published a version, and remembers what came after.
// Another may have the same tag, so that it has to be one that was published here: that of an
// event, or of a watermark before the first.
func (s *snapshot[T]) own(v version) bool {
	if v.tag() != s.tag || v < s.since || v > s.version {
		return false
	}
	return v.counter() == uint64(s.first) || v == s.since || s.events.published(v)
}

// knowsAfter reports whether everything is known that came after a version of another
// replica.
func (m *moment[T]) knowsAfter(v version) bool {
	return !m.alone() && !v.isUnresumable() && !v.local() && v.watermark() >= m.floor && v.watermark() >= m.dropped
}

// young reports whether this replica has not yet read far enough to know what came after a version. Lists are not in pages then, because no client could
// watch from their versions.
func (m *moment[T]) young() bool { return !m.alone() && m.watermark < m.floor }

// get returns an object.
func (s *snapshot[T]) get(key string) (T, bool) {
	it, found := s.objects.Get(item[T]{key: key})
	return it.object, found
}

// ascend calls f for the objects of a scope after a key.
func ascend[T Object](objects *btree.BTreeG[item[T]], within scope, after string, f func(T) bool) {
	start := within.String()
	if after != "" {
		start = max(start, after+"\x00")
	}
	objects.AscendGreaterOrEqual(item[T]{key: start}, func(i item[T]) bool {
		return within.has(i.key) && f(i.object)
	})
}

// asOf returns the objects as they were at a version of this replica.
func (s *snapshot[T]) asOf(v version) *btree.BTreeG[item[T]] {
	s.cloning.Lock()
	objects := s.objects.Clone()
	s.cloning.Unlock()
	var none T
	undone := map[string]bool{} // it was, before the first change, what it was at the version
	for _, e := range s.events.after(v).kept {
		switch {
		case undone[e.key]:
			continue
		case e.previous == none:
			objects.Delete(item[T]{key: e.key})
		default:
			objects.ReplaceOrInsert(item[T]{e.key, e.previous})
		}
		undone[e.key] = true
	}
	return objects
}
