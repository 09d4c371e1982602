// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"slices"
	"sort"
	"sync/atomic"
	"time"
)

// event is a change of one object.
type event[T Object] struct {
	key              string
	previous, object T      // nil: it was not there, it has gone
	cause            uint64 // not lower than those of the events before
	timed            bool
	version          version
	at               time.Time
	size             int                            // about how many bytes are kept for it alone
	encoded          int                            // about how many bytes an encoding has
	sent             atomic.Pointer[encodedOnce[T]] // what most watches send; nil: each encodes it
}

// history holds events in the order in which they were published. Each has a position, which
// counts all events from the first on.
type history[T Object] struct {
	events[T]
	cause     uint64 // the highest of all events
	bytes     int    // the size of the events that are kept
	dropped   int    // that of those that were dropped and may still be in memory
	encodable uint64 // the position of the first event whose encodings are kept
	encoded   int    // about how many bytes one encoding of each of them has
}

// maxDropped is how many bytes events may hold that were dropped.
const maxDropped = 1 << 20

// eventBytes is about how many bytes an event holds besides objects.
const eventBytes = 128

// Encodings are kept of so many events, for watches that are as quick as most are, if one of each
// has at most so many bytes.
const (
	shareEncoded      = 256
	shareEncodedBytes = 4 << 20
)

// push adds an event, what one encoding of which has about so many bytes.
func (h *history[T]) push(e *event[T], encoded int) {
	h.kept = append(h.kept, e) // behind what readers have
	h.end++
	h.bytes += e.size
	e.encoded = encoded
	for h.encoded += encoded; h.encodable < h.end-1 && (h.end-h.encodable > shareEncoded || h.encoded > shareEncodedBytes); h.encodable++ {
		if h.encodable >= h.start {
			h.forgetEncodings(h.at(h.encodable))
		}
	}
}

func (h *history[T]) forgetEncodings(e *event[T]) {
	h.encoded -= e.encoded
	e.sent.Store(nil)
}

// causeOf returns the cause of the next event.
func (h *history[T]) causeOf(change uint64) uint64 {
	if change != Always {
		h.cause = max(h.cause, change)
	}
	return h.cause
}

func (h *history[T]) pop() *event[T] {
	e := h.at(h.start)
	if h.start >= h.encodable {
		h.forgetEncodings(e)
		h.encodable = h.start + 1
	}
	h.kept = h.kept[1:]
	h.start++
	h.bytes -= e.size
	if h.dropped += e.size + eventBytes; h.dropped > maxDropped { // readers may have the array as it was
		h.kept, h.dropped = slices.Clone(h.kept), 0
	}
	return e
}

// events are those of some positions. What has been published is never changed, so that it can be read
// without a lock, but for event.sent.
type events[T Object] struct {
	kept       []*event[T] // the oldest first
	start, end uint64      // the positions of the first event, and after the last
}

// at returns the event of a position.
func (l *events[T]) at(position uint64) *event[T] { return l.kept[position-l.start] }

// from returns the events from a position on, at most n. It copies the slice: a watch whose client does not read has it for
// long, and would keep all of the array in memory.
func (l *events[T]) from(position uint64, n int) []*event[T] {
	rest := l.kept[position-l.start:]
	return slices.Clone(rest[:min(n, len(rest))])
}

// after returns the events with a version greater than v.
func (l events[T]) after(v version) events[T] {
	return l.skip(func(e *event[T]) bool { return e.version <= v })
}

// skip leaves out the events for which before is true. All of these come first.
func (l events[T]) skip(before func(*event[T]) bool) events[T] {
	n := sort.Search(len(l.kept), func(i int) bool { return !before(l.kept[i]) })
	return events[T]{l.kept[n:], l.start + uint64(n), l.end}
}

// published reports whether an event has a version.
func (l events[T]) published(v version) bool {
	rest := l.skip(func(e *event[T]) bool { return e.version < v })
	return len(rest.kept) > 0 && rest.kept[0].version == v
}
