// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"math"
	"slices"
)

// process is what the process of a replica can know about the order of events.
type process struct {
	// synced is an upper bound of the revision at which the process had read everything for the first time. Of
	// earlier events, it only knows the result.
	synced int64
	// gaps are times in which it may have missed events, whose result it listed later.
	gaps []gap
}

// gap is an interval between two revisions.
type gap struct{ from, to int64 }

// notYet is the revision of something that has not happened yet.
const notYet = math.MaxInt64

// knows returns the revision from which on a process knows what came after an event at a revision: the same
// revision if it was watching.
func (s *process) knows(at int64) int64 {
	from := max(at, s.synced)
	for _, g := range s.gaps {
		if g.from <= from && from < g.to {
			from = g.to
		}
	}
	return from
}

// saw reports whether a process has seen an event at a revision. Of events in a list, it only knows the result.
func (s *process) saw(at int64) bool {
	return at > s.synced && !slices.ContainsFunc(s.gaps, func(g gap) bool { return g.from <= at && at <= g.to })
}

// sawAll reports whether a process has seen all events from one revision to another.
func (s *process) sawAll(from, to int64) bool {
	return from > s.synced && !slices.ContainsFunc(s.gaps, func(g gap) bool { return g.from <= to && from <= g.to })
}

// gap begins a gap, which ends at the next calm.
func (o *oracle) gap(replica int) {
	s := o.servers[replica]
	s.gaps = append(s.gaps, gap{o.revision, notYet})
}

// died records that the process of a replica has ended, and began that a new one has read everything.
func (o *oracle) died(replica int)  { o.servers[replica] = &process{synced: notYet} }
func (o *oracle) began(replica int) { o.servers[replica] = &process{synced: o.revision} }

// closeGaps records that all servers have seen everything.
func (o *oracle) closeGaps() {
	for _, s := range o.servers {
		for i := range s.gaps {
			s.gaps[i].to = min(s.gaps[i].to, o.revision)
		}
		s.synced = min(s.synced, o.revision)
	}
}

// writers returns the servers that may have written a workload: the ones that have requested a write of its
// previous version.
func (w *workload) writers(before *state) (all []*process) {
	for i, p := range proxies {
		if p.patched(w.path(), before.version) {
			all = append(all, w.cell.oracle.servers[i])
		}
	}
	return all
}

// path is the path of the workload in the API.
func (w *workload) path() string {
	return "/apis/apps/v1/namespaces/" + w.cell.namespace + "/" + resourceOf(w.kind) + "/" + w.name
}
