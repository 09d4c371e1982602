// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"cmp"
	"slices"
	"strings"
)

// members are the sources that a glob names, without those that are ignored.
type members struct {
	count int
	// byName and byTime are the first of them by name, and those that changed last, by the clock of the API server.
	byName, byTime []*Source
}

// ordering is an order of sources, of which so many of the first are kept.
type ordering struct {
	compare func(a, b *Source) int
	kept    int
}

var (
	// More than MaxMatched are kept, so that not every deletion requires a lookup of all.
	orderedByName = ordering{func(a, b *Source) int { return strings.Compare(a.Name, b.Name) }, MaxMatched + 28}
	orderedByTime = ordering{func(a, b *Source) int {
		return cmp.Or(b.LastChangeTime.Compare(a.LastChangeTime.Time), strings.Compare(a.Name, b.Name))
	}, 16}
)

// insert adds a source to the first of so many. The result shares nothing with them.
func (o *ordering) insert(first []*Source, of int, s *Source) []*Source {
	i, _ := slices.BinarySearchFunc(first, s, o.compare)
	if i == len(first) && len(first) < of {
		return first // it comes after some that are not kept
	}
	out := slices.Insert(slices.Clip(first), i, s)
	return out[:min(len(out), o.kept)]
}

// remove is the reverse of insert.
func (o *ordering) remove(first []*Source, s *Source) []*Source {
	i, found := slices.BinarySearchFunc(first, s, o.compare)
	if !found {
		return first
	}
	return slices.Delete(slices.Clone(first), i, i+1)
}

// after returns the members when a source has changed, or nil: too few of the first of them are left.
func (m *members) after(before, now *Source) *members {
	next := *m
	if before != nil {
		next.remove(before)
	}
	if now != nil {
		next.add(now)
	}
	if len(next.byName) < min(next.count, MaxMatched) || next.count > 0 && len(next.byTime) == 0 {
		return nil
	}
	return &next
}

func (m *members) add(s *Source) {
	if s.Ignored {
		return
	}
	m.byName = orderedByName.insert(m.byName, m.count, s)
	m.byTime = orderedByTime.insert(m.byTime, m.count, s)
	m.count++
}

func (m *members) remove(s *Source) {
	if s.Ignored {
		return
	}
	m.byName = orderedByName.remove(m.byName, s)
	m.byTime = orderedByTime.remove(m.byTime, s)
	m.count--
}

// membersOf returns the members of an aggregate, which is that of the graph as it is, or of no workload.
func (g *Graph) membersOf(a *aggregate) *members {
	m := a.members.Load()
	if m == nil {
		m = g.lookUpMembers(a)
		a.members.Store(m)
	}
	return m
}

func (g *Graph) lookUpMembers(a *aggregate) *members {
	m := &members{}
	g.eachNamed(a, m.add)
	return m
}

// eachNamed calls f for the sources that an aggregate names, ignored ones among them.
func (g *Graph) eachNamed(a *aggregate, f func(*Source)) {
	g.sources.from(SourceKey{a.id.Kind, a.id.namespace, a.matcher.prefix}, func(key *SourceKey, s *Source) bool {
		if key.Namespace != a.id.namespace || key.Kind != a.id.Kind || !strings.HasPrefix(key.Name, a.matcher.prefix) {
			return false
		}
		if a.names(key.Name) {
			f(s)
		}
		return true
	})
}
