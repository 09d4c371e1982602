// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import "slices"

// Whether all replicas decide the same. Replicas read the same, but at other times, and one that has run for longer has
// seen more of it happen. What an API server shows on one replica must not stay with a client that goes to another: see
// Decision.Timed and Decision.Provisional.

// timed returns Decision.Timed.
func (e *Evaluation) timed(d *Decision) bool {
	switch {
	case e.recalls, e.Workload.RecordDropped(), e.Workload.RecordRekeyed(): // another replica may not remember the same
		return true
	case d.State == Unmanaged, !e.Workload.Rollable:
		return false
	case d.State == Settling, d.State == Pending:
		return true
	case d.State == Blocked:
		return d.Stale || e.Record.Hash != e.Hash || e.InDoubt()
	default: // what is recorded next, or is not recorded while the workload is paused, may be only this process's idea
		return !e.Comparable() || e.Record.Hash != e.Hash || d.Action != None && d.Action != Continue
	}
}

// provisional returns Decision.Provisional of a decision that is timed.
func (e *Evaluation) provisional(d *Decision) bool {
	if d.State == Unmanaged { // the record is shown, though nothing is decided by it
		return e.Workload.RecordDropped() || e.Workload.RecordRekeyed()
	}
	if d.State == Blocked && e.Workload.RecordDropped() { // so is the last restart, and it is not written again
		return true
	}
	return !e.writtenStale() && (d.Stale || e.inquires())
}

// writtenStale reports whether annotations say that pods run with other content, or may: every replica reads them.
func (e *Evaluation) writtenStale() bool {
	changed, _ := e.stale()
	return e.superseded() != nil || slices.ContainsFunc(changed, func(c change) bool {
		return e.hashDiffers() || e.differs(c.trackedSource)
	})
}
