// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"time"

	"k8s.io/client-go/util/workqueue"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/limit"
	"github.com/configdep/configdep/pkg/wave"
)

// sweep is the handling of all workloads at the beginning of a term, and when policies have changed. Until it is over, the planner does not know how many
// restarts are in progress, so no restart begins to which a limit applies.
type sweep struct {
	left      map[dependency.WorkloadKey]struct{} // nil: it is over
	limits    *limit.Set
	number    int // of the planner
	notBefore time.Time
}

// takeOver is how long after the beginning of a term all restarts that the last leader began have certainly been read: its Lease had expired, or its term
// had ended.
const takeOver = 2 * time.Second

// sweptAll is in the queue when a sweep may be over.
var sweptAll dependency.WorkloadKey

// beginSweep begins a sweep over some workloads, which are about to be queued.
func (c *Controller) beginSweep(now decide.Evaluator, keys []dependency.WorkloadKey) {
	if c.Planner == nil {
		return
	}
	left := make(map[dependency.WorkloadKey]struct{}, len(keys))
	for _, key := range keys {
		left[key] = struct{}{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sweep.number = c.Planner.Unready()
	if c.sweep.left, c.sweep.limits = left, now.Limits(); c.queue != nil && len(left) == 0 {
		c.queue.Add(sweptAll)
	}
}

// swept notes that the planner knows about a workload. If our last write to the workload has yet to come back, it is handled again when that has.
func (c *Controller) swept(key dependency.WorkloadKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sweep.left == nil {
		return
	}
	if delete(c.sweep.left, key); len(c.sweep.left) == 0 && c.queue != nil {
		c.queue.Add(sweptAll)
	}
}

// endSweep ends a sweep, if it is over, when it may end.
func (c *Controller) endSweep(queue workqueue.TypedDelayingInterface[dependency.WorkloadKey]) {
	if number, is := c.isSwept(queue); is {
		c.Planner.Ready(number)
	}
}

func (c *Controller) isSwept(queue workqueue.TypedDelayingInterface[dependency.WorkloadKey]) (number int, is bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sweep.left == nil || len(c.sweep.left) > 0 {
		return 0, false
	}
	if wait := c.sweep.notBefore.Sub(c.Clock.Now()); wait > 0 && (c.Planner.Limited() || c.sweep.limits != nil) {
		queue.AddAfter(sweptAll, wait)
		return 0, false
	}
	c.sweep.left = nil
	return c.sweep.number, true
}

// limited begins another sweep if policies have changed.
func (c *Controller) limited(now decide.Evaluator) {
	c.mu.Lock()
	same := c.Planner == nil || c.sweep.limits.Same(now.Limits())
	if same {
		c.sweep.limits = now.Limits() // only statuses differ, which are not to be compared again each time
	}
	c.mu.Unlock()
	if !same {
		c.enqueueAll(now)
	}
}

// waves tells the planner of a workload. Paused: its restart is not tried yet, because the last one failed.
type waves struct {
	*wave.Planner
	paused bool
}

// Hold implements decide.Waves.
func (w waves) Hold(m *wave.Member) *wave.Hold {
	if w.paused {
		m.Due = false
	}
	return w.Note(m)
}
