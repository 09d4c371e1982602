// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

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
}

// Rekey is called when the key of the hash has been replaced, and what was read with it has been
// applied: nothing else is until it returns. Everything has to be read again, and the index is
// not synced until then. What is known besides digests stays: the order of what has happened,
// and whether the content is that of each record. So no change is lost that this process saw,
// and nothing is restarted because of another key.
func (x *Index) Rekey() {
	g, kept := x.beginRekey()
	switch {
	case !kept:
		x.Reset()
	case g != nil:
		vouched := x.vouch(g)
		x.mu.Lock()
		defer x.mu.Unlock()
		x.rekeyed.vouched = vouched
	}
}

// beginRekey waits for running readers, and keeps others out until everything has been read again.
// It returns what was read with the key before, or nil if that has been compared already, and
// whether anything is known that can be kept.
func (x *Index) beginRekey() (g *dependency.Graph, kept bool) {
	x.reading.Lock()
	defer x.reading.Unlock()
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.waiting) > 0 && x.rekeyed == nil || x.regress {
		return nil, false
	}
	for _, name := range x.resources {
		x.waiting[name] = true
	}
	if x.rekeyed != nil { // nothing has been compared since
		return nil, true
	}
	x.rekeyed = &rekeyed{order: x.order}
	return x.snapshot(), true
}

// vouch returns what each record says of the content that was read with the key before.
func (x *Index) vouch(g *dependency.Graph) map[dependency.WorkloadKey]*policy.Vouched {
	vouched, then := map[dependency.WorkloadKey]*policy.Vouched{}, policy.Evaluator{Graph: g, Defaults: x.defaults}
	g.EachWorkload(func(w *dependency.Workload) {
		if v := then.Vouch(w); v != nil {
			vouched[w.WorkloadKey] = v
		}
	})
	return vouched
}

// translate says records with the current key, once everything has been read with it. The lock
// is held, and released after each workload: the index is not synced yet. What is applied
// meanwhile is newer than the lists. If it concerns a workload whose turn has yet to come, its
// record is said with what is there then.
func (x *Index) translate() {
	before := x.rekeyed
	for key, v := range before.vouched {
		if w := x.workload(key); w != nil {
			if next := v.Translate(policy.Evaluator{Graph: x.graph, Defaults: x.defaults}, w, before.order); next != w {
				x.setWorkload(next, w, w.ResourceVersion, dependency.Arrival{Order: x.order})
			}
		}
		x.letOthers()
	}
	x.rekeyed = nil
}
