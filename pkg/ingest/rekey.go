package ingest

import (
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
)

// rekeyed is a graph that was read with a key of the hash that has been replaced, while
// everything is read again.
type rekeyed struct {
	vouched map[dependency.WorkloadKey]*policy.Vouched
	order   uint64 // of what was read when the key was replaced
	reading bool   // a list that stands for what was read with the key before
}

// Rekey is called when the key of the hash has been replaced. Everything has to be read again,
// and the index is not synced until then. What is known besides digests stays: the order of
// what has happened, and whether the content is that of each record. So no change is lost
// that this process saw, and nothing is restarted because of another key.
func (x *Index) Rekey() {
	x.mu.Lock()
	if len(x.waiting) > 0 && x.rekeyed == nil || x.regress {
		x.mu.Unlock()
		x.Reset() // nothing is known that could be kept
		return
	}
	defer x.mu.Unlock()
	if x.rekeyed == nil { // else nothing has been compared since
		x.rekeyed = &rekeyed{vouched: map[dependency.WorkloadKey]*policy.Vouched{}, order: x.order}
		x.graph.EachWorkload(func(w *dependency.Workload) {
			if v := policy.Vouch(x.graph, x.digester, w, x.defaults); v != nil {
				x.rekeyed.vouched[w.WorkloadKey] = v
			}
		})
	}
	for _, name := range x.resources {
		x.waiting[name] = true
	}
}

// rereads reports whether a list is being applied that stands for what was read with another
// key.
func (x *Index) rereads() bool { return x.rekeyed != nil && x.rekeyed.reading }

// reread ends that.
func (x *Index) reread() {
	if x.rekeyed != nil {
		x.rekeyed.reading = false
	}
}

// translate says records with the current key, once everything has been read with it.
func (x *Index) translate() {
	before := x.rekeyed
	x.rekeyed = nil
	for key, v := range before.vouched {
		w := x.graph.Workload(key)
		if w == nil {
			continue
		}
		if next := v.Translate(x.graph, x.digester, w, x.defaults, before.order); next != w {
			x.setWorkload(next, w, w.ResourceVersion, dependency.Arrival{Order: x.order})
		}
	}
}
