package watchcache

import (
	"sort"
	"time"
)

// event is a change of one object.
type event[T Object] struct {
	key              string
	previous, object T // nil: it was not there, it has gone
	cause            uint64
	timed            bool
	version          version
	at               time.Time
	sent             *encodedOnce[T] // what most watches send; nil: each encodes it
}

// ring holds events in the order in which they were published. Each has a position,
// which counts all events from the first on.
type ring[T Object] struct {
	events []event[T]
	head   int    // index of the first event that is kept
	popped uint64 // number of events that have been dropped
}

func (r *ring[T]) len() int         { return len(r.events) - r.head }
func (r *ring[T]) first() *event[T] { return &r.events[r.head] }
func (r *ring[T]) start() uint64    { return r.popped }
func (r *ring[T]) end() uint64      { return r.popped + uint64(r.len()) }

// shareEncoded is of how many events the encodings are kept, for watches that are as quick
// as most are.
const shareEncoded = 256

func (r *ring[T]) push(e event[T]) {
	r.events = append(r.events, e)
	if r.len() > shareEncoded {
		r.events[len(r.events)-1-shareEncoded].sent = nil
	}
}

func (r *ring[T]) pop() event[T] {
	e := r.events[r.head]
	r.events[r.head] = event[T]{} // let go of the objects
	r.head++
	r.popped++
	if r.head > 1024 && r.head > len(r.events)/2 {
		r.events = append(r.events[:0:0], r.events[r.head:]...)
		r.head = 0
	}
	return e
}

// from returns the events from a position on, at most n.
func (r *ring[T]) from(position uint64, n int) []event[T] {
	at := r.head + int(position-r.popped)
	return r.events[at:min(at+n, len(r.events))]
}

// after returns the position of the first event with a version greater than v.
func (r *ring[T]) after(v version) uint64 {
	kept := r.events[r.head:]
	return r.popped + uint64(sort.Search(len(kept), func(i int) bool { return kept[i].version > v }))
}

// since returns the events from a position on.
func (r *ring[T]) since(position uint64) []event[T] {
	return r.from(max(position, r.popped), r.len())
}

// published reports whether an event has a version.
func (r *ring[T]) published(v version) bool {
	at := r.after(v)
	return at > r.popped && r.events[r.head+int(at-r.popped)-1].version == v
}
