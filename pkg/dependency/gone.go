package dependency

import "cmp"

// goneSource is a source that has been deleted, as it was, with when it went.
type goneSource struct {
	*Source
	change Change
}

// Deleted returns what was known of a source that has been deleted, or nil.
func (g *Graph) Deleted(key SourceKey) *Source { return g.goneOf(key).Source }

// goneOf returns a source that has been deleted, or the zero value.
func (g *Graph) goneOf(key SourceKey) goneSource { return g.gone.get(key) }

// forgetUnused drops what is known of a source that was deleted, if no workload refers to it any more.
func (g *Graph) forgetUnused(key SourceKey) {
	if gone := g.goneOf(key); gone.Source != nil && !g.users.any(key) {
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
	return cmp.Or(g.UnusedDeletion(key).Version, g.unusedBefore)
}

// forgetGone drops what is known of a source that has been deleted.
func (g *Graph) forgetGone(key SourceKey) { g.gone.delete(key) }
