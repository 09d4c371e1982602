// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package configdependency

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/registry/watchcache"
)

// Views computes the ConfigDependency of every workload into a watch cache. It is a sink
// of the index: whatever changes is rendered at once, so that reading costs no work. That is done
// on snapshots of the graph, in the order of what happened. Only what reads the cache waits for it.
type Views struct {
	clock clock.PassiveClock
	due   workqueue.TypedDelayingInterface[dependency.WorkloadKey] // that time alone changes
	// See maxPiece and maxBacklog.
	piece, backlog int
	standby        Standby // nil: it never does
	cache          *watchcache.Cache[*v1alpha1.ConfigDependency]

	mu     sync.Mutex
	queue  []*step       // what has yet to be rendered
	more   chan struct{} // has an element when there is something in the queue
	lives  int           // counts Reset
	states map[v1alpha1.State]int

	rendering sync.Mutex       // is held while a step is taken, and guards the rest
	now       policy.Evaluator // without a graph: everything has been forgotten, or nothing waits
	progress  dependency.Progress
	// waiting are the workloads that time alone will change. While there are any, the graph of the
	// last step is kept.
	waiting sets.Set[dependency.WorkloadKey]
}

// NewViews returns a Views that has not synced. HistoryBytes bounds about how much memory the events
// of the last minutes keep; 0: the default.
func NewViews(historyBytes int, c clock.WithTicker) *Views {
	return &Views{
		clock: c,
		due: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[dependency.WorkloadKey]{
			Clock: c,
		}),
		cache: watchcache.New(watchcache.Config[*v1alpha1.ConfigDependency]{
			New:      func() *v1alpha1.ConfigDependency { return &v1alpha1.ConfigDependency{} },
			Copy:     func(o *v1alpha1.ConfigDependency) *v1alpha1.ConfigDependency { c := *o; return &c },
			Key:      func(o *v1alpha1.ConfigDependency) string { return key(o.Namespace, o.Name) },
			NotReady: NotReady,
			Size:     sizeOf,
			MaxBytes: historyBytes,
			Clock:    c,
			Tag:      uint16(utilrand.Intn(1 << 16)),
			First:    uint16(utilrand.Intn(1 << 16)),
		}),
		piece:   maxPiece,
		backlog: maxBacklog,
		more:    make(chan struct{}, 1),
		states:  map[v1alpha1.State]int{},
		waiting: sets.New[dependency.WorkloadKey](),
	}
}

// Standby reports whether another replica leads, and what this one has found out about pods meanwhile; see
// policy.Observed.
type Standby interface {
	StandsBy() bool
	Found(dependency.WorkloadKey) *policy.Inspection
}

// SetStandby must not be called once anything has been read.
func (v *Views) SetStandby(s Standby) { v.standby = s }

func key(namespace, name string) string { return namespace + "/" + name }

// Reset forgets everything.
func (v *Views) Reset() {
	v.mu.Lock()
	v.lives++
	v.queue = nil
	v.mu.Unlock()
	v.rendering.Lock() // what is being rendered ends soon, as it is of the life before
	defer v.rendering.Unlock()
	v.cache.Reset()
	v.now = policy.Evaluator{}
	v.waiting.Clear()
	v.mu.Lock()
	defer v.mu.Unlock()
	v.states = map[v1alpha1.State]int{}
}

// Run renders what changes, and again what time alone has changed, until the context is done.
func (v *Views) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	defer v.due.ShutDown()
	wg.Go(func() {
		for {
			key, shutdown := v.due.Get()
			if shutdown {
				return
			}
			v.recheck(key)
			v.due.Done(key)
		}
	})
	for {
		select {
		case <-v.more:
			v.catchUp(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// Ready returns nil once everything has been rendered that there was when the graph synced.
func (v *Views) Ready() error {
	if !v.cache.Synced() {
		return errors.New("rendering all workloads")
	}
	return nil
}

// timed reports whether the state of an object follows from the time too: from when content
// was seen to change, which a replica that has been started later does not know.
func timed(o *v1alpha1.ConfigDependency) bool {
	return o.Status.State == v1alpha1.StateSettling || o.Status.State == v1alpha1.StatePending
}

// States returns the number of workloads by state.
func (v *Views) States() map[v1alpha1.State]int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return maps.Clone(v.states)
}

// Drain ends the watches that are open, within some time, so that their clients go to
// another replica.
func (v *Views) Drain(within time.Duration) { v.cache.Drain(within) }

// Watches returns the number of open watches, and of events that are kept for those who
// come back.
func (v *Views) Watches() (open, events int) {
	_, events, open = v.cache.Stats()
	return open, events
}

// Size returns how many objects there are, and about how many bytes each has.
func (v *Views) Size() (objects, averageBytes int) {
	objects, _, _ = v.cache.Stats()
	return objects, v.cache.AverageSize()
}

// neighbours tells the cache what versions of other replicas mean.
func (v *Views) neighbours(at dependency.Progress) {
	v.cache.SetAlone(!at.OneCounter)
	if at.SeveralCounters {
		v.cache.SetLocal()
	}
}
