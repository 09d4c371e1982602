// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package wave

import (
	"slices"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/limit"
)

// groupKey identifies a group: a source in one namespace, or in all those that a policy selects.
type groupKey struct {
	policy, namespace string
	source            Source
}

// group is the workloads that read a source, and are not idle. Those of a lower order come first.
type group struct {
	key    groupKey
	policy *limit.Policy // nil: it is one of a namespace
	// orders are the orders of the workloads that others wait for, the lowest first, and failing are the workloads that fail.
	orders  []*tally
	failing names
	due     map[*member]struct{}
	// ordered is how many workloads have an order of their own, stale or not.
	ordered int
	shown   state
}

// tally is the workloads of one order that are waited for.
type tally struct {
	order int
	names
}

// state is what a group says of those that are due.
type state struct {
	held   bool // those of a higher order than this
	order  int
	by     dependency.WorkloadKey
	halted bool
	failed dependency.WorkloadKey
	// ordered: some have an order of their own.
	ordered bool
}

// names is a set of workloads. One of them represents the set as long as it is a member.
type names struct {
	all   map[dependency.WorkloadKey]struct{}
	first dependency.WorkloadKey
}

func (n *names) add(key dependency.WorkloadKey) {
	if n.all == nil {
		n.all = map[dependency.WorkloadKey]struct{}{}
	}
	if n.all[key] = struct{}{}; len(n.all) == 1 {
		n.first = key
	}
}

// remove removes a workload. If it represented the set, the last one by name now does: it is restarted late, so this search is rare.
func (n *names) remove(key dependency.WorkloadKey) {
	if delete(n.all, key); key != n.first {
		return
	}
	n.first = dependency.WorkloadKey{}
	for k := range n.all {
		if compareKeys(&k, &n.first) > 0 {
			n.first = k
		}
	}
}

func (g *group) empty() bool {
	return len(g.orders) == 0 && len(g.failing.all) == 0 && len(g.due) == 0 && g.ordered == 0
}

// wait adds a workload that those of a higher order wait for.
func (g *group) wait(m *member) {
	i, found := slices.BinarySearchFunc(g.orders, m.Order, func(t *tally, order int) int { return t.order - order })
	if !found {
		g.orders = slices.Insert(g.orders, i, &tally{order: m.Order})
	}
	g.orders[i].add(m.WorkloadKey)
}

func (g *group) unwait(m *member) {
	i, found := slices.BinarySearchFunc(g.orders, m.Order, func(t *tally, order int) int { return t.order - order })
	if !found {
		return
	}
	if g.orders[i].remove(m.WorkloadKey); len(g.orders[i].all) == 0 {
		g.orders = slices.Delete(g.orders, i, i+1)
	}
}

// now returns what the group says.
func (g *group) now() (s state) {
	s.ordered = g.ordered > 0
	if len(g.orders) > 0 {
		s.held, s.order, s.by = true, g.orders[0].order, g.orders[0].first
	}
	if p := g.policy; p != nil && p.FailureLimit > 0 && len(g.failing.all) >= p.FailureLimit {
		s.halted, s.failed = true, g.failing.first
	}
	return s
}

// hold returns what a due workload waits for in the group; nil: nothing.
func (g *group) hold(m *member) *Hold {
	switch s := g.now(); {
	case s.halted:
		return &Hold{Why: Halted, Policy: g.policy, Source: g.key.source, By: s.failed}
	case s.held && s.order < m.Order:
		return &Hold{Why: Order, Policy: g.policy, Source: g.key.source, By: s.by}
	}
	return nil
}
