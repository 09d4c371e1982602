// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/metrics"
	"github.com/configdep/configdep/pkg/notify"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/strategy"
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
	// NoRevisions: ControllerRevisions are not looked up. If they would be needed for a decision, the
	// StatefulSet or DaemonSet is restarted in doubt.
	NoRevisions bool
}

// Controller restarts workloads. It is a sink of the index, and idle until Run or StandBy.
type Controller struct {
	Config

	fields  *strategy.Fields
	budgets strategy.Budgets

	mu    sync.Mutex
	queue workqueue.TypedDelayingInterface[dependency.WorkloadKey] // nil: neither Run nor StandBy runs
	leads bool                                                     // Run runs
	notes map[dependency.WorkloadKey]*note
	// restored is how often etcd was found to be restored.
	restored int
	// found are the results of looking up pods while this replica stands by.
	found map[dependency.WorkloadKey]*policy.Inspection

	another  atomic.Bool   // another replica leads
	readUpTo atomic.Uint64 // the revision up to which everything has been read; 0: that cannot be told
}

// note is what is remembered about a workload during a term, in which this replica leads or stands
// by.
type note struct {
	// written is the version of our last write, and writtenAt is when it was made. Nothing is
	// decided until it has come back through the index, or is regarded as lost.
	written   uint64
	writtenAt time.Time
	// hash is the hash of the record that the workload had then. decided is the place, in the order of reading, of the latest change
	// that had been read when this record was decided on, and recorded is the version of the write that made it. A write that leaves
	// the record as it was, such as the end of a restart, changes neither.
	hash              string
	decided, recorded uint64
	said              said
	// staleSince is when content was first seen to differ from the record.
	staleSince time.Time
	record     string
	// looked is when pods were last looked up.
	looked time.Time
	// unreported is how many times in a row the kubelets had yet to report.
	unreported int
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
	// due is when the next step of a restart is, and hurried is when the last one ended, if it began before it was due; zero: it did not.
	due, hurried time.Time
	restart      strategy.Memory
	// managed: automatic restarts were on when the workload was last handled, and declaredBy is
	// where that was declared.
	managed    bool
	declaredBy string
	// doubted: a replica that does not lead has seen something to check; see StandBy.
	doubted bool
	pace    pace
}

// said is the content of a record besides its hash: two records with the same hash may have been
// made at different moments.
type said struct{ verified, reload string }

func saidBy(m *dependency.Marks) said { return said{m.Verified, m.LastReload} }

// isLast reports whether the record of a workload is the one that we wrote last, as far as it still
// exists.
func (n *note) isLast(w *dependency.Workload) bool {
	return w.Marks.Hash == "" || saidBy(&w.Marks) == n.said
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
func (c *Controller) Synced(now policy.Evaluator, at dependency.Progress) {
	c.mu.Lock()
	if at.Restored != c.restored {
		// The revisions of our writes are no longer valid.
		c.restored, c.notes = at.Restored, map[dependency.WorkloadKey]*note{}
	}
	c.mu.Unlock()
	c.Progressed(at)
	c.enqueueAll(now.Graph)
}

// Changed implements ingest.Sink.
func (c *Controller) Changed(_ policy.Evaluator, at dependency.Progress, delta dependency.Delta) {
	c.Progressed(at)
	c.enqueue(func(add func(dependency.WorkloadKey)) {
		for _, key := range delta.Workloads {
			add(key) // also if it rests: a worker may be making a note of it, by an older state
		}
	})
}

// enqueue queues workloads, outside the lock, because there may be very many. If the term ends meanwhile, its queue
// drops them, and the next term begins with all workloads.
func (c *Controller) enqueue(each func(add func(dependency.WorkloadKey))) {
	c.mu.Lock()
	queue, leads := c.queue, c.leads
	c.mu.Unlock()
	switch {
	case queue == nil:
	case leads:
		each(queue.Add)
	default:
		each(func(key dependency.WorkloadKey) { queue.AddAfter(key, standbyPause/2) })
	}
}

// TellsOfSources implements ingest.Sink.
func (*Controller) TellsOfSources() bool { return false }

// Progressed implements ingest.Sink.
func (c *Controller) Progressed(at dependency.Progress) {
	if at.SeveralCounters {
		c.readUpTo.Store(0)
	} else {
		c.readUpTo.Store(at.Watermark)
	}
}

func (c *Controller) enqueueAll(g *dependency.Graph) {
	c.enqueue(func(add func(dependency.WorkloadKey)) {
		g.EachWorkload(func(w *dependency.Workload) {
			if !c.rests(w) {
				add(w.WorkloadKey)
			}
		})
	})
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
func (c *Controller) Run(ctx context.Context, index policy.Index) {
	logger := klog.FromContext(ctx)
	logger.Info("Leading: restarting workloads whose content changes")
	metrics.Leading(true)
	defer func() {
		metrics.Leading(false)
		logger.Info("Stopped leading")
	}()
	c.serve(ctx, index, c.Workers, true)
}

// serve runs the workers until the context is done.
func (c *Controller) serve(ctx context.Context, index policy.Index, workers int, leads bool) {
	// Each workload has its own pace; see pace.
	name := "configdep_rollouts"
	if !leads {
		name = "configdep_standby"
	}
	queue := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[dependency.WorkloadKey]{Name: name, Clock: c.Clock})
	if !index.Read(func(known policy.Evaluator) { c.begin(queue, leads, known.Graph) }) {
		c.begin(queue, leads, nil)
	}
	defer c.end()
	index.Read(func(known policy.Evaluator) { c.enqueueAll(known.Graph) }) // else Synced does

	defer context.AfterFunc(ctx, queue.ShutDown)()
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for c.next(ctx, index, queue, leads) {
			}
		})
	}
	wg.Wait()
}

// begin begins a term. From earlier terms, it keeps what was known when records were written, as long as these stand,
// of the given workloads; nil: the workloads are not known.
func (c *Controller) begin(queue workqueue.TypedDelayingInterface[dependency.WorkloadKey], leads bool, all *dependency.Graph) {
	c.mu.Lock()
	earlier, restored := c.notes, c.restored
	c.mu.Unlock()
	// No worker runs between two terms, so that nothing else reads these notes.
	notes := map[dependency.WorkloadKey]*note{}
	for key, n := range earlier {
		if n.hash != "" && (all == nil || all.Workload(key) != nil) {
			notes[key] = &note{written: n.written, writtenAt: n.writtenAt, hash: n.hash, decided: n.decided, recorded: n.recorded, said: n.said}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.restored != restored { // else revisions mean what they meant
		notes = map[dependency.WorkloadKey]*note{}
	}
	c.queue, c.leads, c.notes, c.found = queue, leads, notes, map[dependency.WorkloadKey]*policy.Inspection{}
}

// end ends a term.
func (c *Controller) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue, c.leads, c.found = nil, false, nil
}

// next handles one workload of the queue. It returns false when there will be no more.
func (c *Controller) next(ctx context.Context, index policy.Index, queue workqueue.TypedDelayingInterface[dependency.WorkloadKey], leads bool) bool {
	key, shutdown := queue.Get()
	if shutdown {
		return false
	}
	defer queue.Done(key)
	if ctx.Err() != nil {
		return true // what is left is for the next leader
	}
	handle := c.assist
	if leads {
		handle = c.reconcile
	}
	after, err := handle(ctx, index, key)
	if err != nil && !apierrors.IsConflict(err) && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Handling a workload failed, will retry", "kind", key.Kind, "workload", klog.KRef(key.Namespace, key.Name), "after", after)
	}
	if after > 0 {
		queue.AddAfter(key, after)
	}
	return true
}

// standbyRuns reports whether StandBy runs.
func (c *Controller) standbyRuns() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.queue != nil && !c.leads
}

// AnotherLeads tells the controller whether another replica leads.
func (c *Controller) AnotherLeads(leads bool) { c.another.Store(leads) }

// StandsBy reports whether StandBy runs and another replica leads.
func (c *Controller) StandsBy() bool { return c.standbyRuns() && c.another.Load() }

// Found returns the result of looking up the pods of a workload while this replica stands by, or nil.
func (c *Controller) Found(key dependency.WorkloadKey) *policy.Inspection {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.found[key]
}

// Busy reports whether workloads are waiting to be handled.
func (c *Controller) Busy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leads && c.queue.Len() > 0
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
	delete(c.found, key)
}
