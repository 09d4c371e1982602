// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package wave

import (
	"cmp"
	"slices"
	"time"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/limit"
)

// Source is a source by its kind and name, in any namespace.
type Source struct {
	Kind dependency.SourceKind
	Name string
}

func (s Source) String() string { return string(s.Kind) + "/" + s.Name }

// Member is what a wave has to know of a workload. It must not be changed once it has been noted.
type Member struct {
	dependency.WorkloadKey
	// Order: workloads with a lower one are restarted earlier.
	Order int
	// Pods is how many it should have.
	Pods int
	// Policies are those that limit it.
	Policies []*limit.Policy
	// For are the sources because of which the workload is to be restarted. Began are the sources that caused the restart in progress,
	// Fails are the sources with whose content its pods fail, and Reads are all sources whose content counts.
	For, Began, Fails, Reads []Source
	// Due: a restart may begin. InProgress: one that configdep has begun is not complete.
	Due, InProgress bool
	// Unfinished: workloads of a higher order wait for it.
	Unfinished bool
	// Baking are the policies whose bake time has not passed since the restart was complete, so that workloads of a higher order still wait.
	Baking []*limit.Policy
}

// same reports whether two members are the same.
func (m *Member) same(o *Member) bool {
	return m.Order == o.Order && m.Pods == o.Pods && m.Due == o.Due && m.InProgress == o.InProgress && m.Unfinished == o.Unfinished &&
		slices.EqualFunc(m.Policies, o.Policies, (*limit.Policy).Same) && slices.EqualFunc(m.Baking, o.Baking, (*limit.Policy).Same) &&
		slices.Equal(m.For, o.For) && slices.Equal(m.Began, o.Began) && slices.Equal(m.Fails, o.Fails) && slices.Equal(m.Reads, o.Reads)
}

// idle reports whether no other workload has to wait because of this one.
func (m *Member) idle() bool {
	return !m.Due && !m.InProgress && !m.Unfinished && len(m.Fails)+len(m.Baking) == 0
}

// Matters reports whether anything depends on the workload.
func (m *Member) Matters() bool { return !m.idle() || m.stays() }

// stays reports whether the workload has to be known even if it is idle: as one of all, or because others wait for it whenever it is stale.
func (m *Member) stays() bool { return m.Order != 0 || m.counted() }

// counted reports whether a budget of a policy is a percentage, so that all workloads count.
func (m *Member) counted() bool {
	return slices.ContainsFunc(m.Policies, func(p *limit.Policy) bool {
		return slices.ContainsFunc(p.Budgets, func(b limit.Budget) bool { return b.Percent() })
	})
}

// Why says why a restart waits for others.
type Why int

// The reasons.
const (
	Halted Why = iota + 1 // a workload fails with the same content
	Order                 // a workload of a lower order is not finished
	Budget                // as many are in progress as may be
)

// Hold says what a restart waits for.
type Hold struct {
	Why Why
	// Policy is the policy that makes it wait; nil: none does.
	Policy *limit.Policy
	// Source is the source of a wave that is halted or ordered, and By is a workload that it waits for; empty: not known yet.
	Source Source
	By     dependency.WorkloadKey
	// Limit is the budget; nil: it is that of all workloads, which is Max.
	Limit *limit.Budget
	Max   int
	// Again is when time alone may change it; zero: never.
	Again time.Time
}

func compareKeys(a, b *dependency.WorkloadKey) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind))
}
