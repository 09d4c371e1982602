// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"fmt"
	"time"

	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
)

// decidePause decides if the workload was paused when it was restarted, or if a user has resumed it since: then the
// annotation is obsolete. While automatic restarts are off, a pause by another tool is left to that tool, which may still be
// running.
func (e *Evaluation) decidePause(now time.Time) (d Decision, paused bool) {
	p := &e.Policy.Pause
	if p.Since == "" || !e.Workload.Pausable {
		return Decision{}, false
	}
	if e.Policy.Mode == policy.Off && len(e.Policy.Problems) == 0 && !p.Began(record.LastReloadOf(e.Workload)) {
		return Decision{}, false
	}
	d = Decision{State: Pending, Reason: ReasonPausePeriod, Action: Resume, Message: "The Deployment was paused when it was restarted. It is due to be resumed."}
	if last := record.LastReloadOf(e.Workload); last != nil {
		d.Trigger = last.Trigger
	}
	if until := p.Until(now); e.Workload.Paused && now.Before(until) {
		d.Action, d.RecheckAt = None, until
		d.Message = fmt.Sprintf("The Deployment was paused when it was restarted, and will be resumed at %s: the pause period is %v. Its new pods will read the content that is current then.",
			until.UTC().Format(time.RFC3339), p.Period)
	}
	return d, true
}
