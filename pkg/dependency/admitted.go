// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"cmp"
	"math"
	"strings"

	"github.com/google/btree"
)

// Each change of a source is matched against all globs of its namespace while nothing else can be read. So the globs of
// a namespace are limited to MaxGlobWork. Which globs are admitted if there are more depends only on the cluster, so
// that all replicas agree: as many as there is room for, ordered by the oldest workload that has them. So a new
// workload never displaces an older one, and when a workload is deleted, the next globs are admitted. For a glob that
// is not admitted, only its workloads are kept.
const (
	MaxGlobWork = 500
	// MaxWorkOfGlob limits the work of one glob, so that a glob without room leaves
	// little unused.
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

// globRank is the place of a glob in the order in which those of a namespace are admitted.
type globRank struct {
	created int64 // the oldest workload that has it, in seconds
	id      globID
}

func (r globRank) before(other globRank) bool {
	return cmp.Or(cmp.Compare(r.created, other.created), compareGlobs(&r.id, &other.id)) < 0
}

// globSpace holds the globs of a namespace.
type globSpace struct {
	ranks    *btree.BTreeG[globRank]
	admitted int       // the first so many
	last     *globRank // the last of them; nil: there is none
	work     int       // of them
}

func (s *globSpace) admits(r globRank) bool { return s.last != nil && !s.last.before(r) }

// next returns the first glob that is not admitted.
func (s *globSpace) next() (r globRank, found bool) {
	if s.admitted == s.ranks.Len() {
		return r, false
	}
	if s.last == nil {
		return s.ranks.Min()
	}
	s.ranks.AscendGreaterOrEqual(*s.last, func(other globRank) bool {
		r, found = other, s.last.before(other)
		return !found
	})
	return r, found
}

// add admits the next glob.
func (s *globSpace) add(r globRank) {
	s.admitted, s.work = s.admitted+1, s.work+r.id.work()
	if s.last == nil || s.last.before(r) {
		s.last = &r
	}
}

// drop reverses add for any admitted glob.
func (s *globSpace) drop(r globRank) {
	s.admitted, s.work = s.admitted-1, s.work-r.id.work()
	if s.last.before(r) || r.before(*s.last) {
		return
	}
	s.last = nil
	s.ranks.DescendLessOrEqual(r, func(other globRank) bool {
		if other.before(r) {
			s.last = &other
		}
		return s.last == nil
	})
}

// rankOf returns the rank of a glob; false: no workload has it.
func (g *Graph) rankOf(id *globID) (r globRank, found bool) {
	g.eachGlobUse(id, func(use *globUse) bool {
		r, found = globRank{use.created, *id}, true
		return false
	})
	return r, found
}

// ranked updates the rank of a glob.
func (g *Graph) ranked(id *globID, before globRank, had bool) {
	now, has := g.rankOf(id)
	if id.work() > MaxWorkOfGlob || had == has && before.created == now.created {
		return
	}
	s := g.globSpaces[id.namespace]
	if s == nil {
		s = &globSpace{ranks: btree.NewG(degree, globRank.before)}
		g.globSpaces[id.namespace] = s
	}
	if had {
		if s.admits(before) {
			s.drop(before)
		}
		s.ranks.Delete(before)
	}
	if has {
		all := s.admitted == s.ranks.Len()
		s.ranks.ReplaceOrInsert(now)
		if all || s.admits(now) {
			s.add(now)
		}
	}
	if has && s.admits(now) {
		g.admit(id)
	} else {
		g.refuse(id)
	}
	for s.work > g.bounds.globWork {
		last := *s.last
		s.drop(last)
		g.refuse(&last.id)
	}
	for {
		next, found := s.next()
		if !found || s.work+next.id.work() > g.bounds.globWork {
			break
		}
		s.add(next)
		g.admit(&next.id)
	}
	if s.ranks.Len() == 0 {
		delete(g.globSpaces, id.namespace)
	}
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

// Admitted reports whether all globs of a workload are admitted. Otherwise, they are too many for its namespace,
// together with those of older workloads.
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

// eachGlobUse calls f for the uses of a glob, those of older workloads first, until it returns false.
func (g *Graph) eachGlobUse(id *globID, f func(*globUse) bool) {
	g.globUsers.from(globUse{glob: *id, created: math.MinInt64}, func(use *globUse, _ struct{}) bool {
		return use.glob == *id && f(use)
	})
}
