package configdependency

import (
	"context"
	"maps"
	"sync"
	"time"

	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/registry/watchcache"
)

// Views computes the ConfigDependency of every workload into a watch cache. It is a sink
// of the index: whatever changes is rendered at once, so that reading costs no work.
type Views struct {
	defaults policy.Defaults
	clock    clock.PassiveClock
	due      workqueue.TypedDelayingInterface[dependency.WorkloadKey] // that time alone changes
	cache    *watchcache.Cache[*v1alpha1.ConfigDependency]

	mu       sync.Mutex // keeps changes in order
	digester *dependency.Digester
	states   map[v1alpha1.State]int
	progress dependency.Progress
	synced   bool
}

// NewViews returns a Views that has not synced.
func NewViews(defaults policy.Defaults, c clock.WithTicker) *Views {
	return &Views{
		defaults: defaults,
		clock:    c,
		due: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[dependency.WorkloadKey]{
			Clock: c,
		}),
		cache: watchcache.New(watchcache.Config[*v1alpha1.ConfigDependency]{
			New:      func() *v1alpha1.ConfigDependency { return &v1alpha1.ConfigDependency{} },
			Copy:     func(o *v1alpha1.ConfigDependency) *v1alpha1.ConfigDependency { c := *o; return &c },
			Key:      func(o *v1alpha1.ConfigDependency) string { return key(o.Namespace, o.Name) },
			NotReady: NotReady,
			Clock:    c,
			Tag:      uint16(utilrand.Intn(1 << 16)),
			First:    uint16(utilrand.Intn(1 << 16)),
		}),
		states: map[v1alpha1.State]int{},
	}
}

func key(namespace, name string) string { return namespace + "/" + name }

// Reset forgets everything. Hashes are computed by the digester from then on.
func (v *Views) Reset(d *dependency.Digester) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.digester, v.synced = d, false
	v.cache.Reset()
	v.states = map[v1alpha1.State]int{}
}

// Graph gives access to the dependency graph.
type Graph interface {
	Read(func(*dependency.Graph)) bool
}

// Run renders again what time alone has changed, until the context is done.
func (v *Views) Run(ctx context.Context, graph Graph) {
	defer context.AfterFunc(ctx, v.due.ShutDown)()
	for {
		key, shutdown := v.due.Get()
		if shutdown {
			return
		}
		graph.Read(func(g *dependency.Graph) {
			v.mu.Lock()
			defer v.mu.Unlock()
			if v.synced {
				v.cache.Apply(v.progress.Watermark, []watchcache.Change[*v1alpha1.ConfigDependency]{v.change(g, key, watchcache.Always)})
			}
		})
		v.due.Done(key)
	}
}

// change renders a workload as it is now. The lock is held.
func (v *Views) change(g *dependency.Graph, workload dependency.WorkloadKey, cause uint64) watchcache.Change[*v1alpha1.ConfigDependency] {
	out := watchcache.Change[*v1alpha1.ConfigDependency]{Key: key(workload.Namespace, workload.ViewName()), Cause: cause}
	if old, found := v.cache.Peek(out.Key); found {
		v.states[old.Status.State]--
	}
	if w := g.Workload(workload); w != nil {
		out.Object = v.render(g, w)
		v.states[out.Object.Status.State]++
		out.Timed = timed(out.Object)
	}
	return out
}

// timed reports whether the state of an object follows from the time too: from when content
// was seen to change, which a replica that has been started later does not know.
func timed(o *v1alpha1.ConfigDependency) bool {
	return o.Status.State == v1alpha1.StateSettling || o.Status.State == v1alpha1.StatePending
}

// render renders a workload, and sees to it that it is rendered again when time changes it.
// The lock is held.
func (v *Views) render(g *dependency.Graph, w *dependency.Workload) *v1alpha1.ConfigDependency {
	e := policy.Evaluate(g, v.digester, w, v.defaults)
	now := v.clock.Now()
	d := e.Decide(policy.Observed{Now: now})
	if !d.RecheckAt.IsZero() {
		v.due.AddAfter(w.WorkloadKey, d.RecheckAt.Sub(now))
	}
	return Render(e, d)
}

// States returns the number of workloads by state.
func (v *Views) States() map[v1alpha1.State]int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return maps.Clone(v.states)
}

// Farewell ends the watches that are open, within some time, so that their clients go to
// another replica.
func (v *Views) Farewell(within time.Duration) { v.cache.Farewell(within) }

// Watches returns the number of open watches, and of events that are kept for those who
// come back.
func (v *Views) Watches() (open, events int) {
	_, events, open = v.cache.Stats()
	return open, events
}

// Synced is part of ingest.Sink.
func (v *Views) Synced(g *dependency.Graph, at dependency.Progress) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.progress, v.synced = at, true
	var objects []*v1alpha1.ConfigDependency
	var changing []watchcache.Change[*v1alpha1.ConfigDependency]
	g.EachWorkload(func(w *dependency.Workload) {
		o := v.render(g, w)
		v.states[o.Status.State]++
		objects = append(objects, o)
		if timed(o) {
			changing = append(changing, watchcache.Change[*v1alpha1.ConfigDependency]{Key: key(o.Namespace, o.Name), Object: o, Cause: watchcache.Always})
		}
	})
	v.neighbours(at)
	v.cache.Replace(objects, at.Watermark, at.Floor)
	// A neighbour that has been running for longer has seen when content changed, and may
	// show another state for a while. Its clients are to be told when they come here.
	v.cache.Apply(at.Watermark, changing)
}

// Changed is part of ingest.Sink.
func (v *Views) Changed(g *dependency.Graph, at dependency.Progress, workloads []dependency.WorkloadKey) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.advance(at)
	changes := make([]watchcache.Change[*v1alpha1.ConfigDependency], len(workloads))
	for i, w := range workloads {
		// Nothing that an object is computed from is newer than the latest revision.
		changes[i] = v.change(g, w, at.Latest)
	}
	v.cache.Apply(at.Watermark, changes)
}

// Progressed is part of ingest.Sink.
func (v *Views) Progressed(at dependency.Progress) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.advance(at)
	v.cache.Progress(at.Watermark)
}

// advance notes what the progress says about other replicas. The lock is held.
func (v *Views) advance(at dependency.Progress) {
	if at.Floor > v.progress.Floor {
		v.cache.Gap(at.Floor)
	}
	if at.OneCounter != v.progress.OneCounter || at.SeveralCounters != v.progress.SeveralCounters {
		v.neighbours(at)
	}
	if at.Asked != v.progress.Asked {
		v.cache.Current(at.Current, at.Asked)
	}
	v.progress = at
}

// neighbours tells the cache what versions of other replicas mean.
func (v *Views) neighbours(at dependency.Progress) {
	v.cache.SetAlone(!at.OneCounter)
	if at.SeveralCounters {
		v.cache.SetLocal()
	}
}
