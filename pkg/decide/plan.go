// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"time"

	"github.com/configdep/configdep/pkg/record"
)

// What package plan asks about a decision.

// Awaits reports whether a restart of the workload is due, or will be, once nothing holds it any longer.
func (d *Decision) Awaits() bool { return len(d.due) > 0 && !d.FieldsOnly() }

// How long a restart takes if that is unknown, and how long one can take: if the last one took longer, the restart was not the only cause.
const (
	usualRestart   = time.Minute
	longestRestart = 10 * time.Minute
)

// Restart returns when the last automatic restart of the workload began (zero: there was none), and about how long one takes: as the last one did, until its
// last pod was ready.
func (e *Evaluation) Restart(d *Decision) (began time.Time, takes time.Duration) {
	last := record.LastReloadOf(e.Workload)
	if last == nil {
		return time.Time{}, usualRestart
	}
	takes = usualRestart
	if d.Pods != nil && d.Pods.ready.After(last.Time.Time) {
		if took := d.Pods.ready.Sub(last.Time.Time); took <= longestRestart {
			takes = took
		}
	}
	return last.Time.Time, takes
}
