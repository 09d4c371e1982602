// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"math"
	"slices"
	"time"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/judge"
)

// When changed content counts as settled, so that a series of writes causes one restart.

// doubtSettle is the minimum settle time if it is in doubt whether containers have read the content, so that the new containers are not in doubt again.
const doubtSettle = judge.ClockMargin + 3*time.Second

// The longest wait of a restart, in settle times, and in release settle times.
const (
	settleLimit  = 10
	releaseLimit = 4
)

// allDoubts reports whether it is certain of no container that it has not read the content.
func allDoubts(changes []*due) bool {
	return !slices.ContainsFunc(changes, func(c *due) bool { return !c.doubt })
}

// settles returns when changed content counts as settled, and the settle time that applies; release is the client that is in the middle of a release, if
// that is why.
//
// A client that writes the pod template, too, is in the middle of a release if it writes other content, or templates, in the namespace shortly before or
// after. A user who changes one object with the same client does not wait for a release.
func (e *Evaluation) settles(changes []*due) (at time.Time, settle time.Duration, release dependency.FieldManager) {
	settle, limit := e.Policy.Settle, settleLimit
	if allDoubts(changes) {
		settle = max(settle, doubtSettle)
	}
	var first, last time.Time
	long := false // it has changed more often since the record than is remembered
	for _, c := range changes {
		if c.assumed {
			last, first = later(last, c.since), judge.Earlier(first, c.since)
			continue
		}
		periods := e.graph.Periods(e.sourceKey(&c.counted))
		changed := periods[len(periods)-1].Before
		begun := changed
		switch {
		case c.counted.Kind == dependency.SecretProviderClass: // as its pods tell, at any time of that second
			changed = c.since.Add(time.Second)
			begun = changed
		case changed.IsZero(): // before this process began to look: what has gone may have gone later than the rest was written
			changed = periods[len(periods)-1].Written
			begun = later(changed, e.graph.Complete())
		}
		if c.since.IsZero() && len(periods) > dependency.MaxPeriods { // it has changed more often than is remembered
			long = long || periods[1].Before.After(e.Record.At)
			if i := slices.IndexFunc(periods, func(p dependency.Period) bool { return p.Before.After(e.Record.At) }); i >= 0 {
				begun = judge.Earlier(begun, periods[i].Before)
			}
		} else if c.since.After(e.Record.At.Add(time.Second)) { // what changed before was adopted, or was the reason for a restart
			begun = c.since
			if i := slices.IndexFunc(periods, func(p dependency.Period) bool { return !p.After.IsZero() }); i >= 0 { // the first change that was seen
				begun = later(begun, periods[i].Before)
			}
		}
		last, first = later(last, changed), judge.Earlier(first, begun)
		switch s := c.source; {
		case e.Policy.ReleaseSettle <= 0:
		case c.gone(): // a release that replaces it may be about to create it again
			settle, limit = max(settle, e.Policy.ReleaseSettle), releaseLimit
		case s != nil && slices.Contains(e.Workload.TemplateBy, s.ChangedBy):
			if other := e.graph.LastWriteBy(s.ChangedBy, s.SourceKey); !other.Before(begun.Add(-e.Policy.ReleaseSettle)) {
				settle, limit, release = e.Policy.ReleaseSettle, releaseLimit, s.ChangedBy
				last = later(last, other)
			}
		}
	}
	if last.IsZero() || long {
		return last, settle, release
	}
	at = last.Add(settle)
	if settle > math.MaxInt64/time.Duration(limit) || first.IsZero() {
		return at, settle, release
	}
	if latest := first.Add(time.Duration(limit) * settle); latest.Before(at) {
		at = latest
	}
	return at, settle, release
}
