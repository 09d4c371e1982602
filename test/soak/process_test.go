// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"math"
	"slices"
)

// process is what the process of a replica can know of what came first.
type process struct {
	// synced is an upper bound of the revision at which it had read everything for the first
	// time. It knows nothing of what came before that but what it found.
	synced int64
	// gaps are times in which it may have missed something and listed it again later.
	gaps []gap
}

// gap is a time between two revisions.
type gap struct{ from, to int64 }

// notYet is the revision of what has yet to happen.
const notYet = math.MaxInt64

// knows returns the revision from which on a process knows what came after something that happened
// at a revision: at once if it was watching.
func (s *process) knows(at int64) int64 {
	from := max(at, s.synced)
	for _, g := range s.gaps {
		if g.from <= from && from < g.to {
			from = g.to
		}
	}
	return from
}

// saw reports whether a process has seen something happen at a revision. What it lists at that revision
// it only finds.
func (s *process) saw(at int64) bool {
	return at > s.synced && !slices.ContainsFunc(s.gaps, func(g gap) bool { return g.from <= at && at <= g.to })
}

// sawAll reports whether the server has seen all that happened from one revision to another.
func (s *process) sawAll(from, to int64) bool {
	return from > s.synced && !slices.ContainsFunc(s.gaps, func(g gap) bool { return g.from <= to && from <= g.to })
}

// gap begins a gap, which ends at the next calm.
func (o *oracle) gap(replica int) {
	s := o.servers[replica]
	s.gaps = append(s.gaps, gap{o.revision, notYet})
}

// died is told that the process of a replica has ended, and began that another has read everything.
func (o *oracle) died(replica int)  { o.servers[replica] = &process{synced: notYet} }
func (o *oracle) began(replica int) { o.servers[replica] = &process{synced: o.revision} }

// closeGaps is told that all servers have seen everything.
func (o *oracle) closeGaps() {
	for _, s := range o.servers {
		for i := range s.gaps {
			s.gaps[i].to = min(s.gaps[i].to, o.revision)
		}
		s.synced = min(s.synced, o.revision)
	}
}

// writers returns the servers that may have made a write of a workload: those that have asked for
// one of the version that was there before.
func (w *workload) writers(before *state) (all []*process) {
	for i, p := range proxies {
		if p.patched(w.path(), before.version) {
			all = append(all, w.cell.oracle.servers[i])
		}
	}
	return all
}

// path is where the API server has a workload.
func (w *workload) path() string {
	return "/apis/apps/v1/namespaces/" + w.cell.namespace + "/" + resourceOf(w.kind) + "/" + w.name
}
