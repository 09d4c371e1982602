// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"maps"
	"slices"
	"strings"
)

// Each change of a source is matched against all globs of its namespace while nothing else can be read. So the globs of
// a namespace are limited to MaxGlobWork. If there are more, none of them is admitted, so that all replicas agree: only
// the workloads that have them are kept.
const (
	MaxGlobWork = 500
	// MaxWorkOfGlob limits the work of one glob. A larger one does not count.
	MaxWorkOfGlob = 100
)

// work returns the cost of matching a source against a glob, and of keeping what it names: 1, unless it is a regular
// expression, has exceptions that are globs, or is long.
func (id *globID) work() int {
	n := id.Work() + (len(id.Name)+len(id.except))/256
	for name := range strings.SplitSeq(id.except, ",") {
		n += Pattern{Name: name}.Work()
	}
	return n
}

// globSpace has the globs of a namespace whose work counts, and the sum.
type globSpace struct {
	globs map[globID]struct{}
	work  int
}

// useGlob notes that a workload has a glob.
func (g *Graph) useGlob(id *globID, key WorkloadKey) {
	g.globUsers.set(&globUse{*id, key}, struct{}{})
	s := g.globSpaces[id.namespace]
	if s == nil {
		s = &globSpace{globs: map[globID]struct{}{}}
	}
	if _, used := s.globs[*id]; used || id.work() > MaxWorkOfGlob {
		return
	}
	g.globSpaces[id.namespace] = s
	before := s.work
	s.globs[*id], s.work = struct{}{}, s.work+id.work()
	switch {
	case s.work <= g.globWork:
		g.admit(id)
	case before <= g.globWork:
		s.each(g.refuse)
	}
}

// disuseGlob is the reverse of useGlob.
func (g *Graph) disuseGlob(id *globID, key WorkloadKey) {
	g.globUsers.delete(globUse{*id, key})
	s := g.globSpaces[id.namespace]
	if s == nil || g.usesGlob(id) {
		return
	}
	if _, counted := s.globs[*id]; !counted {
		return
	}
	g.refuse(id)
	before := s.work
	delete(s.globs, *id)
	if s.work -= id.work(); len(s.globs) == 0 {
		delete(g.globSpaces, id.namespace)
	}
	if before > g.globWork && s.work <= g.globWork {
		s.each(g.admit)
	}
}

// each calls f for the globs, in order. When it is called, these are about as many as are admitted.
func (s *globSpace) each(f func(*globID)) {
	for _, id := range slices.SortedFunc(maps.Keys(s.globs), func(a, b globID) int { return compareGlobs(&a, &b) }) {
		f(&id)
	}
}

func (g *Graph) usesGlob(id *globID) (used bool) {
	g.eachGlobUse(id, func(*globUse) bool {
		used = true
		return false
	})
	return used
}

// refuse drops what is known about a glob.
func (g *Graph) refuse(id *globID) {
	if g.globs.get(*id) != nil {
		g.globs.delete(*id)
		g.changedGlobs = append(g.changedGlobs, *id)
	}
}

// admit begins to track what a glob names.
func (g *Graph) admit(id *globID) {
	if g.globs.get(*id) != nil {
		return
	}
	a := newAggregate(*id)
	g.globs.set(&a.id, a)
	g.changedGlobs = append(g.changedGlobs, *id)
}

// Globs are some globs of a graph.
type Globs []globID

// TakeChangedGlobs returns the globs that have been admitted, and those that no longer are, since the last call.
func (g *Graph) TakeChangedGlobs() (changed Globs) {
	changed, g.changedGlobs = g.changedGlobs, nil
	return changed
}

// UsersOfGlobs calls f for the workloads that have any of some globs.
func (g *Graph) UsersOfGlobs(globs Globs, f func(WorkloadKey)) {
	for i := range globs {
		g.eachGlobUse(&globs[i], func(use *globUse) bool {
			f(use.workload)
			return true
		})
	}
}

// Admitted reports whether all globs of a workload are admitted. Otherwise, one of them, or all of its namespace together, are too much work.
func (g *Graph) Admitted(key WorkloadKey) bool {
	if n := g.extra.get(key); n != nil {
		for _, id := range n.globs {
			if g.globs.get(id) == nil {
				return false
			}
		}
	}
	return true
}

// eachGlobUse calls f for the uses of a glob, until it returns false.
func (g *Graph) eachGlobUse(id *globID, f func(*globUse) bool) {
	g.globUsers.from(globUse{glob: *id}, func(use *globUse, _ struct{}) bool { return use.glob == *id && f(use) })
}
