package watchcache

import "time"

// event is a change of one object.
type event[T Object] struct {
	key              string
	previous, object T      // nil: it was not there, it has gone
	cause            uint64 // not lower than those of the events before
	timed            bool
	version          version
	at               time.Time
	sent             *encodedOnce[T] // what most watches send; nil: each encodes it
}

// history holds events in the order in which they were published. Each has a position, which
// counts all events from the first on.
type history[T Object] struct {
	segments   []*segment[T] // that hold events, the oldest first
	start, end uint64        // the positions of the first event that is kept, and after the last
	cause      uint64        // the highest of all events
}

// segmentSize is how many events a segment holds. Those that are dropped are let go of by whole
// segments.
const segmentSize = 32

// segment holds the events of segmentSize positions. What has been published is never changed, so
// that it can be read without a lock, but for event.sent.
type segment[T Object] struct {
	events [segmentSize]event[T]
	next   *segment[T]
}

func (h *history[T]) len() int { return int(h.end - h.start) }

// at returns the event of a position, which is kept.
func (h *history[T]) at(position uint64) *event[T] {
	return &h.segments[position/segmentSize-h.start/segmentSize].events[position%segmentSize]
}

// shareEncoded is of how many events the encodings are kept, for watches that are as quick
// as most are.
const shareEncoded = 256

func (h *history[T]) push(e event[T]) {
	if h.end%segmentSize == 0 {
		s := &segment[T]{}
		if n := len(h.segments); n > 0 {
			h.segments[n-1].next = s
		}
		h.segments = append(h.segments, s)
	}
	if e.cause != Always {
		h.cause = max(h.cause, e.cause)
	}
	e.cause = h.cause
	h.segments[len(h.segments)-1].events[h.end%segmentSize] = e
	if h.end++; h.len() > shareEncoded {
		h.at(h.end - 1 - shareEncoded).sent = nil
	}
}

func (h *history[T]) pop() *event[T] {
	e := h.at(h.start)
	if h.start++; h.start%segmentSize == 0 {
		h.segments[0] = nil // let go of the objects
		h.segments = h.segments[1:]
	}
	return e
}

// from returns the events from a position on, at most n.
func (h *history[T]) from(position uint64, n int) []event[T] {
	out := make([]event[T], min(uint64(n), h.end-position))
	for i := range out {
		out[i] = *h.at(position + uint64(i))
	}
	return out
}

// all returns the events that are kept, for reading without the lock.
func (h *history[T]) all() events[T] {
	out := events[T]{start: h.start, end: h.end}
	if h.len() > 0 {
		out.segment = h.segments[0]
	}
	return out
}

// events are those of some positions.
type events[T Object] struct {
	segment    *segment[T] // of the first
	start, end uint64
}

// each calls f for the events in their order.
func (l events[T]) each(f func(*event[T])) {
	for l.start < l.end {
		f(&l.segment.events[l.start%segmentSize])
		l.next()
	}
}

// next leaves out the first event.
func (l *events[T]) next() {
	if l.start++; l.start%segmentSize == 0 && l.start < l.end {
		l.segment = l.segment.next
	}
}

// after returns the events with a version greater than v.
func (l events[T]) after(v version) events[T] {
	return l.skip(func(e *event[T]) bool { return e.version <= v })
}

// skip leaves out the events that come before the first for which before is false.
func (l events[T]) skip(before func(*event[T]) bool) events[T] {
	// A whole segment is left out if that is so of its last event.
	for last := l.start | (segmentSize - 1); last < l.end && before(&l.segment.events[segmentSize-1]); last += segmentSize {
		if l.start = last + 1; l.start < l.end {
			l.segment = l.segment.next
		}
	}
	for l.start < l.end && before(&l.segment.events[l.start%segmentSize]) {
		l.next()
	}
	return l
}

// published reports whether an event has a version.
func (l events[T]) published(v version) bool {
	rest := l.skip(func(e *event[T]) bool { return e.version < v })
	return rest.start < rest.end && rest.segment.events[rest.start%segmentSize].version == v
}
