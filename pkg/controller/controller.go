// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/metrics"
	"github.com/configdep/configdep/pkg/notify"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/strategy"
	"github.com/configdep/configdep/pkg/wave"
	"github.com/configdep/configdep/pkg/workload"
)

// Config configures a Controller.
type Config struct {
	Client workload.Client
	// Sink is notified of what happens to workloads.
	Sink  notify.Sink
	Clock clock.WithTicker
	// Workers is the number of workloads that are handled at the same time.
	Workers int
	// AdmissionPolicy is the name of the MutatingAdmissionPolicy that keeps annotations on workloads.
	AdmissionPolicy string
	// Planner lets restarts wait for others; nil: none does.
	Planner *wave.Planner
}

// Controller restarts workloads. It is a sink of the index, and idle until Run.
type Controller struct {
	Config

	fields  *strategy.Fields
	budgets sync.Map // see strategy.Restart

	mu    sync.Mutex
	queue workqueue.TypedDelayingInterface[dependency.WorkloadKey] // nil: Run does not run
	notes map[dependency.WorkloadKey]*note
	sweep sweep
	// restored is how often etcd was found to be restored.
	restored int
}

// note is what is remembered about a workload during a term, in which this replica leads.
type note struct {
	// written is the version of our last write, and writtenAt is when it was made. Nothing is
	// decided until it has come back through the index, or is regarded as lost.
	written   uint64
	writtenAt time.Time
	// told is the last event about the workload being blocked.
	told string
	// shown is the hash of the content for which it was last reported that the workload would be restarted; empty: none
	// since its pods were last up to date.
	shown string
	// waits is what a restart that is under way waits for, since when, and whether an event says
	// so.
	waits      string
	waitsSince time.Time
	waitsTold  bool
	// refused is when a step of a restart was last refused because of a PodDisruptionBudget; zero: the last one was not.
	refused time.Time
	restart strategy.Memory
	// managed: automatic restarts were on when the workload was last handled, and declaredBy is
	// where that was declared.
	managed    bool
	declaredBy string
	pace       pace
	// fails: the last event about it said that new pods fail. staleSince is since when pods run with old content; zero: none is known to.
	fails      bool
	staleSince time.Time
	// rewrites is how many of the workload's rewrites have been counted.
	rewrites int
}

// lostAfter is how long our write may take to come back through the index. After that, it is regarded as
// lost: etcd may have been restored to an earlier state, which the index does not notice if it has read
// nothing after that state. If the write is only late, the next one conflicts.
const lostAfter = 5 * time.Minute

// awaits returns for how long to wait for our last write, given the version of the workload that has been
// read; 0: the write has come back, or is regarded as lost.
func (n *note) awaits(now time.Time, resourceVersion string) time.Duration {
	if dependency.ParseVersion(resourceVersion) >= n.written {
		return 0
	}
	return max(0, n.writtenAt.Add(lostAfter).Sub(now))
}

// New returns a Controller.
func New(c Config) *Controller {
	return &Controller{Config: c, fields: strategy.NewFields(c.Client, c.Clock)}
}

// Synced implements ingest.Sink.
func (c *Controller) Synced(now decide.Evaluator, at dependency.Progress) {
	c.mu.Lock()
	if at.Restored != c.restored {
		// The revisions of our writes are no longer valid.
		c.restored, c.notes = at.Restored, map[dependency.WorkloadKey]*note{}
	}
	c.mu.Unlock()
	c.enqueueAll(now)
}

// Changed implements ingest.Sink.
func (c *Controller) Changed(_ decide.Evaluator, _ dependency.Progress, delta dependency.Delta) {
	c.Queue(delta.Workloads) // also those that rest: a worker may be making a note of one, by an older state
}

// Progressed implements ingest.Sink.
func (*Controller) Progressed(dependency.Progress) {}

// Queue queues workloads, outside the lock, because there may be very many. It does not block. If the term ends meanwhile, its queue drops them, and the
// next term begins with all workloads.
func (c *Controller) Queue(keys []dependency.WorkloadKey) {
	if queue := c.current(); queue != nil {
		for _, key := range keys {
			queue.Add(key)
		}
	}
}

// current returns the queue of this term; nil: another replica leads.
func (c *Controller) current() workqueue.TypedDelayingInterface[dependency.WorkloadKey] {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.queue
}

func (c *Controller) enqueueAll(now decide.Evaluator) {
	if c.current() == nil {
		return
	}
	var keys []dependency.WorkloadKey
	now.Graph.EachWorkload(func(w *dependency.Workload) {
		if !c.rests(w) {
			keys = append(keys, w.WorkloadKey)
		}
	})
	c.beginSweep(now, keys)
	c.Queue(keys)
}

// rests reports whether there is nothing to do or to remember about a workload, as for most in a cluster in which few
// have opted in.
func (c *Controller) rests(w *dependency.Workload) bool {
	if !policy.Dormant(w) {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.notes[w.WorkloadKey] == nil
}

// Run restarts workloads until the context is done, and returns when nothing is under way.
func (c *Controller) Run(ctx context.Context, index decide.Index) {
	logger := klog.FromContext(ctx)
	logger.Info("Leading: restarting workloads whose content changes")
	metrics.Leading(true)
	defer func() {
		metrics.Leading(false)
		logger.Info("Stopped leading")
	}()
	// Each workload has its own pace; see pace.
	queue := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[dependency.WorkloadKey]{Name: "configdep_rollouts", Clock: c.Clock})
	c.serve(queue)
	defer c.serve(nil)
	index.Read(func(known decide.Evaluator) { c.enqueueAll(known) }) // else Synced does

	defer context.AfterFunc(ctx, queue.ShutDown)()
	var wg sync.WaitGroup
	for range c.Workers {
		wg.Go(func() {
			for c.next(ctx, index, queue) {
			}
		})
	}
	wg.Wait()
}

// serve begins a term with a queue, or ends one.
func (c *Controller) serve(queue workqueue.TypedDelayingInterface[dependency.WorkloadKey]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue, c.notes, c.sweep = queue, map[dependency.WorkloadKey]*note{}, sweep{}
	if c.Planner != nil {
		c.sweep.notBefore = c.Clock.Now().Add(takeOver)
		c.Planner.Lead(queue != nil)
	}
}

// next handles one workload of the queue. It returns false when there will be no more.
func (c *Controller) next(ctx context.Context, index decide.Index, queue workqueue.TypedDelayingInterface[dependency.WorkloadKey]) bool {
	key, shutdown := queue.Get()
	if shutdown {
		return false
	}
	defer queue.Done(key)
	if ctx.Err() != nil {
		return true // what is left is for the next leader
	}
	if key == sweptAll {
		c.endSweep(queue)
		return true
	}
	after, err := c.reconcile(ctx, index, key)
	if err != nil && !apierrors.IsConflict(err) && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Handling a workload failed, will retry", "kind", key.Kind, "workload", klog.KRef(key.Namespace, key.Name), "after", after)
	}
	if after > 0 {
		queue.AddAfter(key, after)
	}
	return true
}

// Busy reports whether workloads are waiting to be handled.
func (c *Controller) Busy() bool {
	queue := c.current()
	return queue != nil && queue.Len() > 0
}

// note returns what is remembered about a workload.
func (c *Controller) note(key dependency.WorkloadKey) *note {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.notes[key]
	if n == nil {
		n = &note{}
		c.notes[key] = n
	}
	return n
}

func (c *Controller) forget(key dependency.WorkloadKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.notes, key)
}
