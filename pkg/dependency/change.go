// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"cmp"
	"hash/maphash"
	"maps"
)

// What changes a graph.

// SetWorkload adds a workload or replaces the one with the same key. Patterns name
// sources that it uses in addition to those of its template.
func (g *Graph) SetWorkload(w *Workload, patterns Patterns) {
	before := g.useOf(w.WorkloadKey)
	now := use{workload: w, extra: before.extra}
	switch {
	case len(patterns.Sources) == 0:
		now.extra = nil
	case before.extra == nil || !before.extra.patterns.equal(patterns):
		now.extra = newExtra(w.Namespace, patterns)
	}
	g.relate(before.workload, w)
	g.workloads.set(&w.WorkloadKey, w)
	g.noteWrite(w.Namespace, w.templateBy, maphash.Comparable(seed, w.WorkloadKey), w.TemplateSeen)
	g.replaceUse(before, now)
}

// DeleteWorkload removes a workload, if it exists.
func (g *Graph) DeleteWorkload(key WorkloadKey) {
	before := g.useOf(key)
	if before.workload == nil {
		return
	}
	g.relate(before.workload, nil)
	g.workloads.delete(key)
	g.replaceUse(before, use{})
}

// use is what a workload uses.
type use struct {
	workload *Workload // nil: there is none
	extra    *extra    // nil: nothing besides its template
}

func (g *Graph) useOf(key WorkloadKey) use { return use{g.Workload(key), g.extra.get(key)} }

func (g *Graph) replaceUse(before, now use) {
	g.users.replace(before, now)
	key := cmp.Or(now.workload, before.workload).WorkloadKey
	g.setExtra(key, before.extra, now.extra)
}

// eachReference calls f for what a workload refers to by name.
func (u *use) eachReference(f func(*Reference)) {
	if u.workload == nil {
		return
	}
	for i := range u.workload.References {
		f(&u.workload.References[i])
	}
	if u.extra != nil {
		for i := range u.extra.references {
			f(&u.extra.references[i])
		}
	}
}

// SetSource adds a source or replaces the one with the same key.
func (g *Graph) SetSource(s *Source) {
	before := g.sources.get(s.SourceKey)
	g.sources.set(&s.SourceKey, s)
	g.aggregateChanged(before, s)
	g.unbury(s.SourceKey)
	g.noteWrite(s.Namespace, s.ChangedBy, maphash.Comparable(seed, s.SourceKey), s.before)
}

// DeleteSource removes a source, if it exists, and remembers its periods for workloads that use it.
func (g *Graph) DeleteSource(key SourceKey, at Arrival) {
	deleted := g.sources.get(key)
	if deleted == nil {
		return
	}
	g.bury(deleted, at)
	g.sources.delete(key)
	g.aggregateChanged(deleted, nil)
}

// SetUnreadNamespace sets what counts as our annotations of namespaces that have not been read: by default none. It is
// called before anything is read.
func (g *Graph) SetUnreadNamespace(annotations map[string]string) { g.unreadNamespace = annotations }

// SetNamespace sets our annotations of a namespace and reports whether they have changed.
func (g *Graph) SetNamespace(name string, annotations map[string]string) (changed bool) {
	n := g.namespace(name)
	if maps.Equal(n.annotations, annotations) {
		return false
	}
	n.annotations = annotations
	g.setNamespace(n)
	return true
}

// SetNamespaceLabels sets the labels of a namespace and reports whether they have changed.
func (g *Graph) SetNamespaceLabels(name string, labels map[string]string) (changed bool) {
	n := g.namespace(name)
	if maps.Equal(n.labels, labels) {
		return false
	}
	n.labels = labels
	g.setNamespace(n)
	return true
}

// SetTerminating notes whether a namespace is being deleted, and reports whether that has
// changed.
func (g *Graph) SetTerminating(name string, terminating bool) (changed bool) {
	n := g.namespace(name)
	if n.terminating == terminating {
		return false
	}
	n.terminating = terminating
	g.setNamespace(n)
	return true
}
