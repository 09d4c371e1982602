package dependency

import (
	"cmp"
	"slices"
)

// goneSource is a source that has been deleted, as it was, with when it went.
type goneSource struct {
	*Source
	change Change
}

// Deleted returns what was known of a source that has been deleted, or nil.
func (g *Graph) Deleted(key SourceKey) *Source { return g.goneOf(key).Source }

// goneOf returns a source that has been deleted, or the zero value.
func (g *Graph) goneOf(key SourceKey) goneSource { return g.gone.get(key) }

// forget drops when sources were deleted that a workload used and that none uses any more. Now
// are the patterns that it has instead.
func (g *Graph) forget(before glob, now []Pattern) {
	if before.workload == nil || g.gone.len() == 0 {
		return
	}
	for i := range before.workload.References {
		g.forgetUnused(before.workload.sourceKey(i))
	}
	if len(before.patterns) == 0 || slices.Equal(before.patterns, now) {
		return
	}
	var matching []SourceKey
	g.eachGone(before.workload.Namespace, func(gone goneSource) {
		if before.matcher.Matches(gone.Kind, gone.Name) {
			matching = append(matching, gone.SourceKey)
		}
	})
	for _, key := range matching {
		g.forgetUnused(key)
	}
}

func (g *Graph) forgetUnused(key SourceKey) {
	if gone := g.goneOf(key); gone.Source != nil && !g.Used(key) {
		g.noteUnused(key, gone.change)
		g.forgetGone(key)
	}
}

// unusedDeletion is the deletion of a source that no workload used, with its version.
type unusedDeletion struct {
	SourceKey
	version uint64
}

// maxUnused bounds how many deletions of sources that no workload used are remembered.
const maxUnused = 1000

// noteUnused remembers no more of a deleted source than when it went: a workload that used it may be
// read only afterwards, on another stream.
func (g *Graph) noteUnused(key SourceKey, change Change) {
	if len(g.lastUnused) >= maxUnused {
		first := g.lastUnused[0]
		g.unusedBefore = max(g.unusedBefore, first.version)
		if g.lastUnused = g.lastUnused[1:]; g.unused.get(first.SourceKey).Version == first.version {
			g.unused.delete(first.SourceKey)
		}
	}
	g.lastUnused = append(g.lastUnused, unusedDeletion{key, change.Version})
	g.unused.set(&key, change)
}

// UnusedDeletion returns when a source was last deleted while no workload used it; zero: it was not, or
// that is not remembered any more. A workload may use it that was read only afterwards.
func (g *Graph) UnusedDeletion(key SourceKey) Change { return g.unused.get(key) }

// missingSince returns an upper bound of since when a source has been missing, as a resourceVersion; 0:
// since before anything was read.
func (g *Graph) missingSince(key SourceKey) uint64 {
	if gone := g.goneOf(key); gone.Source != nil {
		return gone.change.Version
	}
	return cmp.Or(g.UnusedDeletion(key).Version, max(g.unusedBefore, g.forgotten.Version))
}

// remember notes a source that has been deleted.
func (g *Graph) remember(gone goneSource) { g.gone.set(&gone.SourceKey, gone) }

// forgetGone drops what is known of a source that has been deleted.
func (g *Graph) forgetGone(key SourceKey) { g.gone.delete(key) }

// eachGone calls f for the sources of a namespace that have been deleted.
func (g *Graph) eachGone(namespace string, f func(goneSource)) {
	g.gone.from(SourceKey{Namespace: namespace}, func(key *SourceKey, gone goneSource) bool {
		if key.Namespace != namespace {
			return false
		}
		f(gone)
		return true
	})
}

// maxGone bounds how many deletions are remembered for globs: a namespace in which sources
// with new names come and go would need ever more memory.
const maxGone = 10_000

// forgetOldest forgets the older half of the deletions that only globs name.
func (g *Graph) forgetOldest() {
	var old []goneSource
	g.gone.each(func(gone goneSource) {
		if !g.users.any(gone.SourceKey) {
			old = append(old, gone)
		}
	})
	slices.SortFunc(old, func(a, b goneSource) int { return cmp.Compare(a.change.Version, b.change.Version) })
	for _, gone := range old[:len(old)/2] {
		if gone.change.Version > g.forgotten.Version {
			g.forgotten = gone.change
		}
		g.forgetGone(gone.SourceKey)
	}
}

// LastGone returns for each of some globs when the last of the sources that it names in a
// namespace, and none of those that except, was deleted, of those that are gone: the zero value
// if none is known. It may be later than that when too many have gone to remember them all.
func (g *Graph) LastGone(namespace string, globs, except []Pattern) []Change {
	last, matchers := make([]Change, len(globs)), make([]globMatcher, len(globs))
	for i := range globs {
		last[i], matchers[i] = g.forgotten, newGlobMatcher(globs[i])
	}
	excepted := NewMatcher(except)
	g.eachGone(namespace, func(gone goneSource) {
		for i := range matchers {
			if gone.change.Version >= last[i].Version && matchers[i].matches(gone.Kind, gone.Name) && !excepted.Matches(gone.Kind, gone.Name) {
				last[i] = gone.change
			}
		}
	})
	return last
}
