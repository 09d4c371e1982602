// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import "strings"

// members are the sources that a glob names, without those that are ignored.
type members struct {
	count int
	first []*Source // by name, at most MaxMatched
}

// membersOf returns the members of an aggregate, which is that of the graph as it is, or of no workload.
func (g *Graph) membersOf(a *aggregate) *members {
	for key := range g.besides {
		if key.Namespace == a.id.namespace && key.Kind == a.id.Kind && a.names(key.Name) {
			return g.lookUpMembers(a)
		}
	}
	m := a.members.Load()
	if m == nil {
		m = g.lookUpMembers(a)
		a.members.Store(m)
	}
	return m
}

func (g *Graph) lookUpMembers(a *aggregate) *members {
	m := &members{}
	g.eachNamed(a, func(s *Source) {
		if s.Ignored {
			return
		}
		if m.count++; len(m.first) < MaxMatched {
			m.first = append(m.first, s)
		}
	})
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
