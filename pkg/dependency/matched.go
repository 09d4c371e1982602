// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// MaxNames is how many names of the sources that globs match are shown, and MaxMatched how many sources the globs of a workload may match.
const (
	MaxNames   = 100
	MaxMatched = 1000
)

// Matched are the sources of a namespace that a glob names: all existing ones, except those that a pattern excludes, and those that are ignored.
type Matched struct {
	// Count is how many they are.
	Count int

	aggregate *aggregate
	members   *members
}

// Matched returns what a glob names in a namespace.
func (g *Graph) Matched(namespace string, glob Pattern, exclude []Pattern) *Matched {
	id := newGlobID(namespace, glob, exclude)
	a := g.globs.get(id)
	if a == nil { // no workload in the graph has it
		a = newAggregate(id)
	}
	m := g.membersOf(a)
	return &Matched{m.count, a, m}
}

// Has reports whether the glob names a source, whether or not the source exists.
func (m *Matched) Has(name string) bool { return m.aggregate.names(name) }

// Names returns the names of the first matches, at most MaxMatched.
func (m *Matched) Names() []string {
	names := make([]string, min(len(m.members.byName), MaxMatched))
	for i := range names {
		names[i] = m.members.byName[i].Name
	}
	return names
}

// LastChangeTime returns the latest of when their content was last written, by the clock of the API server.
func (m *Matched) LastChangeTime() (at metav1.Time) {
	if len(m.members.byTime) > 0 {
		at = m.members.byTime[0].LastChangeTime
	}
	return at
}
