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
	segments   []*segment[T] // that hold events, the oldest first
	shared     []*segment[T] // a copy of that; nil: they have changed since
	start, end uint64        // the positions of the first event that is kept, and after the last
	cause      uint64        // the highest of all events
	bytes      int           // the size of the events that are kept
	dropped    int           // that of those that were dropped from the first segment
	encodable  uint64        // the position of the first event whose encodings are kept
	encoded    int           // about how many bytes one encoding of each of them has
}

// segmentSize is how many events a segment holds. Those that are dropped are let go of by whole
// segments, or once they hold much.
const segmentSize = 32

// maxDropped is how many bytes events may hold that were dropped.
const maxDropped = 1 << 20

// segment holds the events of segmentSize positions. What has been published is never changed, so
// that it can be read without a lock, but for event.sent.
type segment[T Object] [segmentSize]*event[T]

func (h *history[T]) len() int { return int(h.end - h.start) }

// at returns the event of a position, which is kept.
func (h *history[T]) at(position uint64) *event[T] {
	return h.segments[position/segmentSize-h.start/segmentSize][position%segmentSize]
}

// Encodings are kept of so many events, for watches that are as quick as most are, if one of each
// has at most so many bytes.
const (
	shareEncoded      = 256
	shareEncodedBytes = 4 << 20
)

// push adds an event, what one encoding of which has about so many bytes.
func (h *history[T]) push(e *event[T], encoded int) {
	if h.end%segmentSize == 0 {
		h.segments, h.shared = append(h.segments, &segment[T]{}), nil
	}
	h.segments[len(h.segments)-1][h.end%segmentSize] = e
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
	h.start++
	h.bytes -= e.size
	switch h.dropped += e.size; {
	case h.start%segmentSize == 0:
		h.segments[0] = nil // let go of the objects
		h.segments, h.shared, h.dropped = h.segments[1:], nil, 0
	case h.dropped > maxDropped: // readers may have the segment as it was
		rest := &segment[T]{}
		copy(rest[h.start%segmentSize:], h.segments[0][h.start%segmentSize:])
		h.segments[0], h.shared, h.dropped = rest, nil, 0
	}
	return e
}

// all returns the events that are kept, for reading without the lock.
func (h *history[T]) all() events[T] {
	if h.shared == nil {
		h.shared = slices.Clone(h.segments)
	}
	return events[T]{segments: h.shared, first: h.start / segmentSize, start: h.start, end: h.end}
}

// events are those of some positions.
type events[T Object] struct {
	segments   []*segment[T]
	first      uint64 // the number of the first of the segments
	start, end uint64
}

// at returns the event of a position.
func (l *events[T]) at(position uint64) *event[T] {
	return l.segments[position/segmentSize-l.first][position%segmentSize]
}

// from returns the events from a position on, at most n.
func (l *events[T]) from(position uint64, n int) []*event[T] {
	out := make([]*event[T], min(uint64(n), l.end-position))
	for i := range out {
		out[i] = l.at(position + uint64(i))
	}
	return out
}

// each calls f for the events in their order.
func (l events[T]) each(f func(*event[T])) {
	for at := l.start; at < l.end; at++ {
		f(l.at(at))
	}
}

// after returns the events with a version greater than v.
func (l events[T]) after(v version) events[T] {
	return l.skip(func(e *event[T]) bool { return e.version <= v })
}

// skip leaves out the events for which before is true. All of these come first.
func (l events[T]) skip(before func(*event[T]) bool) events[T] {
	l.start += uint64(sort.Search(int(l.end-l.start), func(i int) bool { return !before(l.at(l.start + uint64(i))) }))
	return l
}

// published reports whether an event has a version.
func (l events[T]) published(v version) bool {
	rest := l.skip(func(e *event[T]) bool { return e.version < v })
	return rest.start < rest.end && rest.at(rest.start).version == v
}
