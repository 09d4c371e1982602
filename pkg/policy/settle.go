// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"math"
	"slices"
	"time"

	"github.com/configdep/configdep/pkg/dependency"
)

// When changed content counts as settled, so that a series of writes causes one restart.

// How many settle times a restart waits at most, and how many of those for releases.
const (
	settleLimit  = 10
	releaseLimit = 4
)

// dates are what is known of when changes were made.
type dates struct {
	// seen is when this process saw the last of them; zero: it saw none.
	seen time.Time
	// written is when clients last wrote the content, as far as that is known: of all of it only if
	// complete.
	written  time.Time
	complete bool
	// afterPods: revisions show that one of them was made after the pods had started.
	afterPods bool
}

func (e *Evaluation) datesOf(changes []change) dates {
	d := dates{complete: true}
	for i := range changes {
		c := &changes[i]
		d.seen = later(d.seen, c.seen)
		d.written = later(d.written, c.written)
		d.complete = d.complete && !c.written.IsZero()
		d.afterPods = d.afterPods || !c.seen.IsZero() && !e.graph.SeveralCounters() && e.Workload.StartedBy < c.at.Version
	}
	return d
}

// lastChange returns the time from which the settle time counts; zero: no recent change is known.
func (e *Evaluation) lastChange(changes []change, known *dates) time.Time {
	if known.seen.IsZero() && known.complete { // it changed before this process looked
		return known.written
	}
	last := known.seen
	for i := range changes {
		if c := &changes[i]; c.seen.IsZero() && c.written.IsZero() { // it was removed before the template named it
			last = later(last, e.Workload.TemplateSeen)
		}
	}
	if known.seen.IsZero() {
		return last
	}
	// A source that appeared recently and for which pods were waiting belongs to the
	// change, too.
	for i := range e.tracked {
		last = later(last, e.change(&e.tracked[i]).seen)
	}
	return last
}

// settles returns when changed content counts as settled, and the settle time that applies;
// release reports whether this is the settle time for content that may belong to a release. Seen
// is when the content last changed.
func (e *Evaluation) settles(o Observed, changes []change, seen time.Time) (at time.Time, settle time.Duration, release bool) {
	settle, limit := e.Policy.Settle, settleLimit
	if seen.IsZero() {
		return time.Time{}, settle, false
	}
	if e.Policy.ReleaseSettle > 0 {
		since := seen.Add(-e.Policy.ReleaseSettle * releaseLimit)
		for i := range changes {
			changes[i].trackedSource.eachSource(func(s *dependency.Source) bool {
				// The sources of a glob come in the order of their changes: those that changed earlier, or that
				// the pods have read, do not belong to a release that is under way.
				c := changes[i].trackedSource.changedWith(s.Change)
				if changes[i].trackedSource.glob != nil && (!c.seen.After(since) || e.startedAfter(&c)) {
					return false
				}
				if slices.Contains(e.Workload.TemplateBy, s.ChangedBy) {
					settle, limit, release = e.Policy.ReleaseSettle, releaseLimit, true
					seen = later(seen, e.graph.LastWriteBy(e.Workload.Namespace, s.ChangedBy))
				}
				return true
			})
		}
	}
	return settledAt(o, seen, settle, limit), settle, release
}

// settledAt returns when content counts as settled: the settle time after its last change was
// seen, and at most limit settle times after it was first seen to differ.
func settledAt(o Observed, seen time.Time, settle time.Duration, limit int) time.Time {
	settled := seen.Add(settle)
	if o.StaleSince.IsZero() || settle > math.MaxInt64/time.Duration(limit) {
		return settled
	}
	if latest := o.StaleSince.Add(time.Duration(limit) * settle); latest.Before(settled) {
		return latest
	}
	return settled
}
