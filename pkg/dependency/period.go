// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"slices"
	"time"

	"k8s.io/utils/lru"
)

// Period is a time in which a source had one content, or none. It ends when the next one begins.
type Period struct {
	// Source is the content: of an earlier period its keys alone; nil: the source was absent, or Unknown.
	*Source
	// Unknown: the content is not known, because nothing was read meanwhile.
	Unknown bool
	// The period began in the second of Written, by the API server's clock; zero: nothing tells, as of a removal.
	Written time.Time
	// The period began after After and not after Before, by this server's clock; zero: it was there already when the source was first read.
	After, Before time.Time
}

// MaxPeriods limits the earlier periods that are remembered for a source: twelve, and one that stands for all before; see thin.
const MaxPeriods = 13

const (
	// maxPeriodKeys limits the keys in all periods that are remembered for a source.
	maxPeriodKeys = 4096
	// maxGone limits the deleted sources that are remembered, and maxGoneKeys the keys of one that are.
	maxGone     = 4096
	maxGoneKeys = 64
)

// began returns the current period of the source.
func (s *Source) began() Period {
	return Period{Source: s, Written: s.since, After: s.after, Before: s.before}
}

// Periods returns the periods of a source as far as they are known, the current one last. The first may have begun at any time before
// it is known to have, unless its source is nil.
func (g *Graph) Periods(key SourceKey) []Period {
	if s := g.Source(key); s != nil {
		return append(slices.Clip(s.periods), s.began())
	}
	if gone := g.buried.get(key); gone != nil {
		return *gone
	}
	return []Period{{Unknown: g.selectedByLabel}}
}

// Remember completes a source with the periods before the current one, given what it was before, or nil.
func (s *Source) Remember(previous *Source, g *Graph, at Arrival) {
	s.since = s.LastChangeTime.Time
	switch {
	case at.Seen.IsZero(): // it has just begun to be read
		return
	case previous == nil:
		s.after, s.before = at.from(), at.Seen
		if s.periods = addPeriods(nil, g.Periods(s.SourceKey)...); !at.Live { // it may have been created and deleted before
			s.periods = addPeriods(s.periods, unseen(at.Since, at.Seen))
		}
		return
	}
	moved := !s.LastChangeTime.Equal(&previous.LastChangeTime)
	missed := !at.Live && previous.ResourceVersion != s.ResourceVersion
	switch {
	case slices.EqualFunc(previous.Keys, s.Keys, KeyDigest.same) && (!missed || previous.UID == s.UID && !moved):
		s.periods, s.after, s.before, s.since = previous.periods, previous.after, previous.before, previous.since
		return
	case missed: // it may have had other contents meanwhile
		s.periods = addPeriods(previous.periods, previous.began(), unseen(at.Since, at.Seen))
	default:
		s.periods = addPeriods(previous.periods, previous.began())
	}
	// The time goes back if nothing is left of what the last manager has set, or the fields of managers were emptied.
	untimed := previous.UID == s.UID && (s.LastChangeTime.Before(&previous.LastChangeTime) || !moved && !s.sets(previous))
	if s.after, s.before = at.from(), at.Seen; untimed || missed && previous.hasOther(s) {
		s.since = time.Time{} // the removal of a key leaves no time, and a list may show it together with an earlier change
	}
}

// unseen returns a period of which only a list shows that it has ended.
func unseen(since, seen time.Time) Period { return Period{Unknown: true, After: since, Before: seen} }

// from returns the time after which a change was made that has arrived.
func (a *Arrival) from() time.Time {
	if a.Live {
		return a.Seen
	}
	return a.Since
}

func (k KeyDigest) same(other KeyDigest) bool {
	return k.Key == other.Key && k.Digest == other.Digest && !k.Varied && !other.Varied
}

// addPeriods returns the last periods. Values in the graph are immutable.
func addPeriods(before []Period, more ...Period) []Period {
	out := slices.Clone(before)
	for _, p := range more {
		if p.Source != nil {
			p.Source = &Source{SourceKey: p.SourceKey, Keys: p.Keys}
		}
		out = append(out, p)
	}
	return slices.Clip(thin(out, len(more)))
}

// bury remembers a source that has been deleted, if anything uses it. The earliest deletions are forgotten.
func (g *Graph) bury(s *Source, at Arrival) {
	if at.Seen.IsZero() || !g.Used(s.SourceKey) {
		return
	}
	// A source that has lost the label by which sources are selected is still there.
	before, last := s.periods, s.began()
	until := []Period{{Unknown: g.selectedByLabel, After: at.Seen, Before: at.Seen}}
	if !at.Live { // it may have had other contents meanwhile
		until = []Period{unseen(at.Since, at.Seen), {Unknown: g.selectedByLabel, After: at.Since, Before: at.Seen}}
	}
	if len(s.Keys) > maxGoneKeys {
		last.Source, last.Unknown = nil, true
	}
	for len(before) > 0 && keysIn(before)+len(s.Keys) > maxGoneKeys {
		before = before[1:]
	}
	key := s.SourceKey
	g.buried.set(&key, new(addPeriods(addPeriods(before, last), until...)))
	g.graves.Add(key, struct{}{})
}

func keysIn(periods []Period) (n int) {
	for i := range periods {
		if periods[i].Source != nil {
			n += len(periods[i].Keys)
		}
	}
	return n
}

// unbury forgets a deleted source, because there is one of its name.
func (g *Graph) unbury(key SourceKey) {
	if g.buried.get(key) != nil {
		g.buried.delete(key)
		g.graves.Remove(key)
	}
}

// newGraves returns the order in which sources were deleted.
func (g *Graph) newGraves() *lru.Cache {
	return lru.NewWithEvictionFunc(maxGone, func(key lru.Key, _ any) { g.buried.delete(key.(SourceKey)) })
}
