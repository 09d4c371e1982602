// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"sync"

	"github.com/configdep/configdep/pkg/metrics"
	"github.com/configdep/configdep/pkg/notify"
)

// Limits of what waits for the worker. The event that the worker sends is not counted.
const (
	maxQueued      = 1000
	maxQueuedBytes = 1 << 20
)

// queue holds events until the worker takes them. It is bounded by their number and by their size.
type queue struct {
	mu     sync.Mutex
	events []notify.Event
	bytes  int
	closed bool
	filled chan struct{} // wakes the worker
}

func newQueue() *queue { return &queue{filled: make(chan struct{}, 1)} }

// put adds an event, or returns the result that an event has which cannot be added.
func (q *queue) put(e notify.Event) (lost string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch size := sizeOf(&e); {
	case q.closed:
		return metrics.NotificationShutdown
	case len(q.events) >= maxQueued || q.bytes+size > maxQueuedBytes:
		return metrics.NotificationQueueFull
	default:
		q.events, q.bytes = append(q.events, e), q.bytes+size
	}
	select {
	case q.filled <- struct{}{}:
	default:
	}
	return ""
}

// take waits for an event and removes it. Once ctx is done, it returns false if there is none. Once sending is done, it
// returns false even if there are events.
func (q *queue) take(ctx, sending context.Context) (notify.Event, bool) {
	for sending.Err() == nil {
		done := ctx.Err() != nil // before the queue is looked at
		if e, found := q.pop(); found {
			return e, true
		}
		if done {
			break
		}
		select {
		case <-ctx.Done():
		case <-q.filled:
		}
	}
	return notify.Event{}, false
}

func (q *queue) pop() (e notify.Event, found bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.events) == 0 {
		return e, false
	}
	e = q.events[0]
	q.events[0] = notify.Event{} // what it refers to is free
	q.events, q.bytes = q.events[1:], q.bytes-sizeOf(&e)
	return e, true
}

// close refuses further events, and returns the number of those that it held.
func (q *queue) close() (left int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	left = len(q.events)
	q.events, q.bytes, q.closed = nil, 0, true
	return left
}

// sizeOf returns the size of an event in bytes, with the struct itself rounded up.
func sizeOf(e *notify.Event) int {
	const fixed = 256
	return fixed + len(e.What) + len(e.Workload.Kind) + len(e.Workload.Namespace) + len(e.Workload.Name) + len(e.UID) +
		len(e.Message) + len(e.Trigger) + len(e.RequestedBy)
}
