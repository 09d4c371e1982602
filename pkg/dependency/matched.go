// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"encoding/binary"
	"encoding/hex"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MaxNames is how many names of the sources that a glob matches are shown.
const MaxNames = 100

// Matched are the sources of a namespace that a glob names: all existing ones, except those that a
// pattern excludes, those that are ignored, and those that are set apart.
type Matched struct {
	// Count is how many they are, and Keys how many keys they have.
	Count, Keys int

	graph     *Graph
	aggregate *aggregate
	members   *members
	apart     map[string]bool
	sum       sum // of what stands for their content
	ignored   int
	// ignoredSum is a digest of the names of ignored sources.
	ignoredSum sum
}

// Matched returns what a glob names in a namespace. Apart are names of sources that do not belong to it.
func (g *Graph) Matched(namespace string, glob Pattern, exclude []Pattern, apart []string) *Matched {
	id := newGlobID(namespace, glob, exclude)
	a := g.globs.get(id)
	if a == nil { // no workload in the graph has it
		a = newAggregate(id)
	}
	m := g.membersOf(a)
	out := &Matched{Count: m.count, Keys: m.keys, graph: g, aggregate: a, members: m, sum: m.sum, ignored: m.ignored, ignoredSum: m.ignoredSum}
	if len(apart) == 0 {
		return out
	}
	out.apart = make(map[string]bool, len(apart))
	for _, name := range apart {
		if out.apart[name] || !a.names(name) {
			continue
		}
		out.apart[name] = true
		switch s := g.Source(SourceKey{glob.Kind, namespace, name}); {
		case s == nil:
		case s.Ignored:
			out.ignored--
			out.ignoredSum.subtract(sumOfName(name))
		default:
			out.Count, out.Keys = out.Count-1, out.Keys-len(s.Keys)
			out.sum.subtract(sumOf(s.content))
		}
	}
	return out
}

// AppendContent appends a digest of the content of all sources.
func (m *Matched) AppendContent(b []byte) []byte {
	b = appendString(b, string(m.aggregate.id.Kind))
	b = appendString(b, m.aggregate.id.Name)
	b = binary.AppendUvarint(b, uint64(m.Count))
	return m.sum.append(b)
}

// Ignored is a digest of the names of ignored sources; empty: there are none.
func (m *Matched) Ignored() string {
	if m.ignored == 0 {
		return ""
	}
	return hex.EncodeToString(m.ignoredSum.append(nil))
}

// Has reports whether the glob names a source, whether or not the source exists.
func (m *Matched) Has(name string) bool { return m.aggregate.names(name) && !m.apart[name] }

// Names returns the first of their names, at most 100.
func (m *Matched) Names() (names []string) {
	for _, s := range m.members.byName[:min(len(m.members.byName), MaxNames)] {
		if !m.apart[s.Name] {
			names = append(names, s.Name)
		}
	}
	return names
}

// LastChanged returns the latest of when their content was last written, by the clock of the API server.
func (m *Matched) LastChanged() (at metav1.Time) {
	m.each(m.members.byTime, &orderedByTime, &m.members.cached.byTime, func(s *Source) bool {
		at = s.LastChanged
		return false
	})
	return at
}

// maxRecent limits the sources of a glob that are visited for a workload: otherwise the cost would be the product of
// the numbers of workloads and sources in a namespace.
const maxRecent = 256

// EachRecent calls f for the sources whose content this process read last, the latest first, until f returns false or
// maxRecent have been visited. It reports whether it visited all that f wanted.
func (m *Matched) EachRecent(f func(*Source) bool) (complete bool) {
	return m.each(m.members.byOrder, &orderedByOrder, &m.members.cached.byOrder, f)
}

// each calls f for the first maxRecent in an order, of which some are given and more are cached, until f returns false.
func (m *Matched) each(first []*Source, order *ordering, cache *atomic.Pointer[[]*Source], f func(*Source) bool) (complete bool) {
	sources, left := first, maxRecent
	for i := range m.members.count {
		if i == len(first) {
			sources = m.graph.cachedFirst(m.aggregate, order, cache) // begins with those
		}
		if i == len(sources) {
			return false
		}
		s := sources[i]
		if m.apart[s.Name] {
			continue
		}
		if left == 0 {
			return false
		}
		if left--; !f(s) {
			return true
		}
	}
	return true
}

// EachGone calls f for those that have been deleted, with when they were, the latest first, until f
// returns false. The name is empty for all that are not remembered by their names. One that is there again and
// ignored is none of them.
func (m *Matched) EachGone(f func(name string, change Change) bool) {
	for _, gone := range m.aggregate.gone {
		id := m.aggregate.id
		if s := m.graph.Source(SourceKey{id.Kind, id.namespace, gone.name}); m.apart[gone.name] || s != nil && s.Ignored {
			continue
		}
		if !f(gone.name, gone.change) {
			return
		}
	}
	if m.aggregate.goneBefore != (Change{}) {
		f("", m.aggregate.goneBefore)
	}
}
