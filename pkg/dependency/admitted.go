// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import "strings"

// Each change of a source is matched against all globs of its namespace while nothing else can be read. So the globs of
// a namespace are limited to MaxGlobWork. If there are more, none of them is admitted, so that all replicas agree: only
// the workloads that have them are kept.
const (
	MaxGlobWork = 500
	// MaxWorkOfGlob limits the work of one glob. A larger one does not count.
	MaxWorkOfGlob = 100
)

// work returns the cost of matching a source against a glob, and of keeping what it names: 1, unless it has other
// wildcards than stars, or exceptions that are globs, or is long.
func (id *globID) work() int {
	n := id.Work() + (len(id.Name)+len(id.except))/256
	for name := range strings.SplitSeq(id.except, ",") {
		n += Pattern{Name: name}.Work()
	}
	return n
}

// useGlob notes that a workload has a glob.
func (g *Graph) useGlob(id *globID, key WorkloadKey) {
	used := g.usesGlob(id)
	g.globUsers.set(&globUse{*id, key}, struct{}{})
	if work := id.work(); !used && work <= MaxWorkOfGlob {
		if g.addGlobWork(id.namespace, work); g.globWork[id.namespace] <= g.bounds.globWork {
			g.admit(id)
		}
	}
}

// disuseGlob is the reverse of useGlob.
func (g *Graph) disuseGlob(id *globID, key WorkloadKey) {
	g.globUsers.delete(globUse{*id, key})
	if work := id.work(); !g.usesGlob(id) && work <= MaxWorkOfGlob {
		g.refuse(id)
		g.addGlobWork(id.namespace, -work)
	}
}

func (g *Graph) usesGlob(id *globID) (used bool) {
	g.eachGlobUse(id, func(*globUse) bool {
		used = true
		return false
	})
	return used
}

// addGlobWork changes the work of a namespace, and whether its globs are admitted.
func (g *Graph) addGlobWork(namespace string, by int) {
	before := g.globWork[namespace]
	if g.globWork[namespace] += by; g.globWork[namespace] == 0 {
		delete(g.globWork, namespace)
	}
	change := g.admit
	switch was, is := before <= g.bounds.globWork, before+by <= g.bounds.globWork; {
	case was == is:
		return
	case was:
		change = g.refuse
	}
	g.globUsers.from(globUse{glob: globID{namespace: namespace}}, func(use *globUse, _ struct{}) bool {
		if use.glob.namespace == namespace && use.glob.work() <= MaxWorkOfGlob {
			change(&use.glob)
		}
		return use.glob.namespace == namespace
	})
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
