// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"container/heap"
	"time"
)

// seen tells up to which revision a stream has been applied, and when it last moved.
type seen struct {
	revision uint64
	at       time.Time
	place    int // in the heap
}

// seenStreams are all streams that have received something. With a stream for each resource of each
// namespace there may be many, and each event needs the lowest of their revisions: so they are kept in a
// heap.
type seenStreams struct {
	byName map[string]*seen
	heap   seenHeap
}

func newSeenStreams() seenStreams { return seenStreams{byName: map[string]*seen{}} }

// of returns what is known about a stream.
func (s *seenStreams) of(name string) seen {
	if known := s.byName[name]; known != nil {
		return *known
	}
	return seen{}
}

// observe notes that a stream has moved to a revision, if that is higher than before.
func (s *seenStreams) observe(name string, revision uint64, at time.Time) {
	known := s.byName[name]
	if known == nil {
		known = &seen{revision: revision, at: at}
		s.byName[name] = known
		heap.Push(&s.heap, known)
		return
	}
	known.at = at
	if revision > known.revision {
		known.revision = revision
		heap.Fix(&s.heap, known.place)
	}
}

// forget removes a stream that is not read any longer.
func (s *seenStreams) forget(name string) {
	if known := s.byName[name]; known != nil {
		heap.Remove(&s.heap, known.place)
		delete(s.byName, name)
	}
}

// watermark returns the lowest revision of all streams; false: there are none.
func (s *seenStreams) watermark() (uint64, bool) {
	if len(s.heap) == 0 {
		return 0, false
	}
	return s.heap[0].revision, true
}

// seenHeap has the stream with the lowest revision first. It is a heap.Interface.
type seenHeap []*seen

func (h seenHeap) Len() int           { return len(h) }
func (h seenHeap) Less(i, j int) bool { return h[i].revision < h[j].revision }
func (h seenHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

func (h *seenHeap) Push(x any) {
	s := x.(*seen) //nolint:forcetypeassert // it is of this type alone
	s.place = len(*h)
	*h = append(*h, s)
}

func (h *seenHeap) Pop() any {
	last := len(*h) - 1
	s := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return s
}
