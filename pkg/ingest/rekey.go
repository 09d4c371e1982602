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

// Rekey is called when the key of the hash has been replaced, and all input that was read with
// it has been applied: nothing is applied until Rekey returns. Everything has to be read again,
// and the index is not synced until then. Everything except digests is kept: the order of
// events, and whether the content matches each record. So no change that this process saw is
// lost, and nothing is restarted because of the new key.
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
// It returns the graph of the previous key, or nil if that has been compared already, and whether
// anything is known that can be kept.
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

// vouch returns what each record says about the content that was read with the previous
// key.
func (x *Index) vouch(g *dependency.Graph) map[dependency.WorkloadKey]*policy.Vouched {
	vouched, then := map[dependency.WorkloadKey]*policy.Vouched{}, policy.Evaluator{Graph: g, Defaults: x.defaults}
	g.EachWorkload(func(w *dependency.Workload) {
		if v := then.Vouch(w); v != nil {
			vouched[w.WorkloadKey] = v
		}
	})
	return vouched
}

// translate translates records to the current key, once everything has been read with it. The
// lock is held, and released after each workload: the index is not synced yet. Input that is
// applied in between is newer than the lists. If it affects a workload that has not been
// translated yet, its record is translated with the content at that time.
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
