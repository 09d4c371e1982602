// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/configdep/configdep/pkg/dependency"
)

// touched is what a change affects: workloads, those that use sources, and those that have globs.
// No workload is looked up for it.
type touched struct {
	workloads []dependency.WorkloadKey
	sources   []dependency.SourceKey
	globs     dependency.Globs
}

func (t *touched) add(other touched) {
	t.workloads = append(t.workloads, other.workloads...)
	t.sources = append(t.sources, other.sources...)
	t.globs = append(t.globs, other.globs...)
}

// reset makes it empty. What was added before may still be read.
func (t *touched) reset() { *t = touched{} }

// empty reports whether no workload is affected.
func (t *touched) empty() bool {
	return len(t.workloads) == 0 && len(t.sources) == 0 && len(t.globs) == 0
}

// in returns the affected workloads in a graph, each once, including those that have just been
// deleted.
func (t *touched) in(g *dependency.Graph) []dependency.WorkloadKey {
	switch alone := len(t.globs) == 0 && !g.HasOwned(); {
	case alone && len(t.sources) == 0 && len(t.workloads) == 1:
		return t.workloads
	case alone && len(t.sources) == 1 && len(t.workloads) == 0:
		return g.Users(t.sources[0])
	}
	keys := sets.New(t.workloads...)
	g.UsersOfGlobs(t.globs, func(w dependency.WorkloadKey) { keys.Insert(w) })
	for _, source := range t.sources {
		keys.Insert(g.Users(source)...)
	}
	if g.HasOwned() { // what is left to an owner depends on all that the owner depends on
		for _, owner := range keys.UnsortedList() {
			g.Owned(owner, func(w dependency.WorkloadKey) { keys.Insert(w) })
		}
	}
	return keys.UnsortedList()
}

// news is a notification for sinks: that the graph has synced, or what a change affects.
type news struct {
	graph   *dependency.Graph // nil: there is only progress
	at      dependency.Progress
	touched touched
	synced  bool
}

// note queues a notification of a change, with the current graph. Before the first sync, there
// are none: sinks would handle every workload once for each of its sources. The lock is held.
func (x *Index) note(what touched) {
	what.globs = append(what.globs, x.graph.TakeChangedGlobs()...)
	if len(x.waiting) > 0 {
		return
	}
	n := news{at: x.announce(), touched: what}
	if !what.empty() {
		n.graph = x.snapshot()
	}
	x.news = append(x.news, n)
}

// tellSinks sends pending notifications to the sinks. The index continues meanwhile.
func (x *Index) tellSinks() {
	x.telling.Lock()
	defer x.telling.Unlock()
	x.mu.Lock()
	all := x.news
	x.news = nil
	x.mu.Unlock()
	for i := range all {
		n := &all[i]
		var delta dependency.Delta
		if n.graph != nil && !n.synced {
			delta.Workloads = n.touched.in(n.graph)
		}
		for _, s := range x.sinks {
			switch {
			case n.synced:
				s.Synced(x.evaluator(n.graph), n.at)
			case len(delta.Workloads) > 0:
				s.Changed(x.evaluator(n.graph), n.at, delta)
			default:
				s.Progressed(n.at)
			}
		}
	}
}
