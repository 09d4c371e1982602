// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"cmp"
	"encoding/binary"
	"hash/fnv"
	"math/bits"
	"slices"
	"strings"
	"sync/atomic"
)

// members are the sources that a glob names. Ignored sources are counted separately.
type members struct {
	count, keys int
	sum         sum // of what stands for their content
	ignored     int
	ignoredSum  sum // of what stands for their names
	// byName, byOrder and byTime are the first of them by name, and those that changed last: by the
	// order of reading, and by the clock of the API server.
	byName, byOrder, byTime []*Source
	cached                  *cachedMembers
}

// cachedMembers holds the first maxCached sources of a glob in two orders, each computed on first use. All workloads with
// the glob share it.
type cachedMembers struct{ byOrder, byTime atomic.Pointer[[]*Source] }

// maxCached leaves maxRecent where a workload sets MaxSources apart.
const maxCached = MaxSources + maxRecent

// ordering is an order of sources, of which so many of the first are kept.
type ordering struct {
	compare func(a, b *Source) int
	kept    int
}

var (
	// More than MaxNames are kept, so that not every deletion requires a lookup of all.
	orderedByName  = ordering{func(a, b *Source) int { return strings.Compare(a.Name, b.Name) }, MaxNames + 28}
	orderedByOrder = ordering{func(a, b *Source) int {
		return cmp.Or(cmp.Compare(b.Change.Order, a.Change.Order), strings.Compare(a.Name, b.Name))
	}, 32}
	orderedByTime = ordering{func(a, b *Source) int {
		return cmp.Or(b.LastChanged.Compare(a.LastChanged.Time), strings.Compare(a.Name, b.Name))
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
	next.cached = &cachedMembers{}
	if before != nil {
		next.remove(before)
	}
	if now != nil {
		next.add(now)
	}
	if len(next.byName) < min(next.count, MaxNames) || next.count > 0 && (len(next.byOrder) == 0 || len(next.byTime) == 0) {
		return nil
	}
	return &next
}

func (m *members) add(s *Source) {
	if s.Ignored {
		m.ignored++
		m.ignoredSum.add(sumOfName(s.Name))
		return
	}
	m.byName = orderedByName.insert(m.byName, m.count, s)
	m.byOrder = orderedByOrder.insert(m.byOrder, m.count, s)
	m.byTime = orderedByTime.insert(m.byTime, m.count, s)
	m.count, m.keys = m.count+1, m.keys+len(s.Keys)
	m.sum.add(sumOf(s.content))
}

func (m *members) remove(s *Source) {
	if s.Ignored {
		m.ignored--
		m.ignoredSum.subtract(sumOfName(s.Name))
		return
	}
	m.byName = orderedByName.remove(m.byName, s)
	m.byOrder = orderedByOrder.remove(m.byOrder, s)
	m.byTime = orderedByTime.remove(m.byTime, s)
	m.count, m.keys = m.count-1, m.keys-len(s.Keys)
	m.sum.subtract(sumOf(s.content))
}

// cachedFirst returns the first maxCached of what an aggregate names in an order, without ignored ones.
func (g *Graph) cachedFirst(a *aggregate, order *ordering, cache *atomic.Pointer[[]*Source]) []*Source {
	if first := cache.Load(); first != nil {
		return *first
	}
	var first []*Source
	g.eachNamed(a, func(s *Source) {
		if s.Ignored {
			return
		}
		if first = append(first, s); len(first) == 2*maxCached {
			slices.SortFunc(first, order.compare)
			first = first[:maxCached]
		}
	})
	slices.SortFunc(first, order.compare)
	first = slices.Clone(first[:min(len(first), maxCached)])
	cache.Store(&first)
	return first
}

// sum is a number modulo 2^128. A sum of digests identifies a set, in any order: without the key of
// the digests, two sets with the same sum cannot be found.
type sum struct{ high, low uint64 }

func (s *sum) add(other sum) {
	var carry uint64
	s.low, carry = bits.Add64(s.low, other.low, 0)
	s.high, _ = bits.Add64(s.high, other.high, carry)
}

func (s *sum) subtract(other sum) {
	var borrow uint64
	s.low, borrow = bits.Sub64(s.low, other.low, 0)
	s.high, _ = bits.Sub64(s.high, other.high, borrow)
}

func (s *sum) append(b []byte) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(b, s.high), s.low)
}

func sumOf(d Digest) sum { return sum{binary.BigEndian.Uint64(d[:8]), binary.BigEndian.Uint64(d[8:])} }

func sumOfName(name string) sum {
	h := fnv.New128a()
	h.Write([]byte(name))
	return sumOf(Digest(h.Sum(nil)))
}

// membersOf returns the members of an aggregate, which is that of the graph as it is, or of no workload.
func (g *Graph) membersOf(a *aggregate) *members {
	m := a.members.Load()
	if m == nil {
		with := *g
		with.besides = nil
		m = with.lookUpMembers(a)
		a.members.Store(m)
	}
	for key, s := range g.besides {
		if key.Namespace == a.id.namespace && key.Kind == a.id.Kind && a.names(key.Name) {
			if m = m.after(g.sources.get(key), s); m == nil {
				return g.lookUpMembers(a)
			}
		}
	}
	return m
}

func (g *Graph) lookUpMembers(a *aggregate) *members {
	m := &members{cached: &cachedMembers{}}
	g.eachNamed(a, m.add)
	return m
}

// eachNamed calls f for the sources that an aggregate names, ignored ones among them.
func (g *Graph) eachNamed(a *aggregate, f func(*Source)) {
	is := func(key *SourceKey) bool {
		return key.Namespace == a.id.namespace && key.Kind == a.id.Kind && strings.HasPrefix(key.Name, a.matcher.prefix)
	}
	g.sources.from(SourceKey{a.id.Kind, a.id.namespace, a.matcher.prefix}, func(key *SourceKey, s *Source) bool {
		if !is(key) {
			return false
		}
		if a.names(key.Name) && g.besides[*key] == nil {
			f(s)
		}
		return true
	})
	for key, s := range g.besides {
		if is(&key) && a.names(key.Name) {
			f(s)
		}
	}
}
