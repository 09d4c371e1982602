package configdependency

import (
	"cmp"
	"context"
	"maps"
	"sync"

	"github.com/google/btree"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
)

// Views holds the present ConfigDependency of every workload in the order of namespace
// and name. It is a sink of the index: whatever changes is rendered at once, so that
// reading costs no work and takes no lock for longer than a copy of a pointer.
type Views struct {
	defaults policy.Defaults
	clock    clock.PassiveClock
	due      workqueue.TypedDelayingInterface[dependency.WorkloadKey] // that time alone changes

	mu       sync.RWMutex
	digester *dependency.Digester
	objects  *btree.BTreeG[*v1alpha1.ConfigDependency]
	states   map[v1alpha1.State]int
	revision uint64
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
		objects: btree.NewG(32, before),
		states:  map[v1alpha1.State]int{},
	}
}

// Reset forgets everything. Hashes are computed by the digester from then on.
func (v *Views) Reset(d *dependency.Digester) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.digester, v.synced = d, false
	v.objects.Clear(false)
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
				v.render(g, key)
			}
		})
		v.due.Done(key)
	}
}

// render brings the view of a workload up to date. The lock is held.
func (v *Views) render(g *dependency.Graph, key dependency.WorkloadKey) {
	w := g.Workload(key)
	if w == nil {
		if old, found := v.objects.Delete(at(key.Namespace, key.ViewName())); found {
			v.states[old.Status.State]--
		}
		return
	}
	e := policy.Evaluate(g, v.digester, w, v.defaults)
	now := v.clock.Now()
	d := e.Decide(policy.Observed{Now: now})
	object := Render(e, d, v.revision)
	if old, found := v.objects.ReplaceOrInsert(object); found {
		v.states[old.Status.State]--
	}
	v.states[object.Status.State]++
	if !d.RecheckAt.IsZero() {
		v.due.AddAfter(key, d.RecheckAt.Sub(now))
	}
}

// States returns the number of workloads by state.
func (v *Views) States() map[v1alpha1.State]int {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return maps.Clone(v.states)
}

func before(a, b *v1alpha1.ConfigDependency) bool {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name)) < 0
}

// Synced is part of ingest.Sink.
func (v *Views) Synced(g *dependency.Graph, revision uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.revision, v.synced = revision, true
	g.EachWorkload(func(w *dependency.Workload) { v.render(g, w.WorkloadKey) })
}

// Changed is part of ingest.Sink.
func (v *Views) Changed(g *dependency.Graph, revision uint64, workloads []dependency.WorkloadKey) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.revision = revision
	for _, key := range workloads {
		v.render(g, key)
	}
}

// Progressed is part of ingest.Sink.
func (v *Views) Progressed(revision uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.revision = revision
}

// at returns a key for the place of an object in the order.
func at(namespace, name string) *v1alpha1.ConfigDependency {
	o := &v1alpha1.ConfigDependency{}
	o.Namespace, o.Name = namespace, name
	return o
}

// get returns an object, which nobody may change, or nil.
func (v *Views) get(namespace, name string) *v1alpha1.ConfigDependency {
	v.mu.RLock()
	defer v.mu.RUnlock()
	o, _ := v.objects.Get(at(namespace, name))
	return o
}

// snapshot returns all objects as of one revision.
func (v *Views) snapshot() (*btree.BTreeG[*v1alpha1.ConfigDependency], uint64) {
	v.mu.Lock() // cloning changes the original
	defer v.mu.Unlock()
	return v.objects.Clone(), v.revision
}

// state returns the revision up to which changes are seen, and whether the first sync is
// done.
func (v *Views) state() (revision uint64, synced bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.revision, v.synced
}
