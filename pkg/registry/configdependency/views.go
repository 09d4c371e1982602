package configdependency

import (
	"cmp"
	"sync"

	"github.com/google/btree"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/dependency"
)

// Views holds the present ConfigDependency of every workload in the order of namespace
// and name. It is the sink of the index: whatever changes is rendered at once, so that
// reading costs no work and takes no lock for longer than a copy of a pointer.
type Views struct {
	digester *dependency.Digester

	mu       sync.RWMutex
	objects  *btree.BTreeG[*v1alpha1.ConfigDependency]
	revision uint64
	synced   bool
}

// NewViews returns a Views that has not synced. The digester may be set later, but
// before the first change.
func NewViews() *Views {
	return &Views{objects: btree.NewG(32, before)}
}

// SetDigester sets the digester by which hashes are computed.
func (v *Views) SetDigester(d *dependency.Digester) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.digester = d
}

func before(a, b *v1alpha1.ConfigDependency) bool {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name)) < 0
}

// Synced is part of ingest.Sink.
func (v *Views) Synced(g *dependency.Graph, revision uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	g.EachWorkload(func(w *dependency.Workload) {
		v.objects.ReplaceOrInsert(Render(g, v.digester, w, revision))
	})
	v.revision, v.synced = revision, true
}

// Changed is part of ingest.Sink.
func (v *Views) Changed(g *dependency.Graph, revision uint64, workloads []dependency.WorkloadKey) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, key := range workloads {
		if w := g.Workload(key); w != nil {
			v.objects.ReplaceOrInsert(Render(g, v.digester, w, revision))
		} else {
			v.objects.Delete(at(key.Namespace, key.ViewName()))
		}
	}
	v.revision = revision
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
