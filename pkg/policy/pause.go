// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"time"

	"github.com/configdep/configdep/pkg/dependency"
)

// Pause is for how long a Deployment is paused when it is restarted, so that what changes meanwhile is part of the same
// rollout. The pause is in annotations alone: whichever replica leads resumes the Deployment.
type Pause struct {
	// Period is for how long; zero: it is not paused.
	Period time.Duration
	// Key is the annotation with the time at which the Deployment was paused, and Since is its value. Without it, a
	// Deployment that is paused was paused by a user.
	Key, Since string
}

// begin pauses a Deployment in the patch that restarts it, unless it is paused already.
func (p *Pause) begin(w *dependency.Workload, now time.Time, out *restartPatch) {
	if p.Period > 0 && w.Pausable && !w.Paused {
		out.workload[p.Key] = now.UTC().Format(time.RFC3339)
		out.set([]string{"spec", "paused"}, true)
	}
}

// until returns when a pause ends; the zero time: at once, because the annotation that asked for it is gone, or the time
// at which it began is unknown or in the future.
func (p *Pause) until(now time.Time) time.Time {
	since, err := time.Parse(time.RFC3339, p.Since)
	if err != nil || since.After(now.Add(dependency.MaxClockSkew)) {
		return time.Time{}
	}
	return since.Add(p.Period)
}

// began reports whether the pause began with the last restart by configdep, and not with one by another tool.
func (p *Pause) began(last *LastReload) bool {
	return last != nil && last.Time.UTC().Format(time.RFC3339) == p.Since
}

// decidePause decides when the workload was paused as it was restarted, or has been resumed by a user since: then the
// annotation says nothing any more. While automatic restarts are off, a pause by another tool is left to that tool, which may
// still run.
func (e *Evaluation) decidePause(now time.Time) (d Decision, paused bool) {
	p := &e.Policy.Pause
	if p.Since == "" || !e.Workload.Pausable {
		return Decision{}, false
	}
	if e.Policy.Mode == Off && len(e.Policy.Problems) == 0 && !p.began(LastReloadOf(e.Workload)) {
		return Decision{}, false
	}
	d = Decision{State: Pending, Reason: ReasonPausePeriod, Action: Resume, Message: "The Deployment was paused when it was restarted. It is due to be resumed."}
	if last := LastReloadOf(e.Workload); last != nil {
		d.Trigger = last.Trigger
	}
	if until := p.until(now); e.Workload.Paused && now.Before(until) {
		d.Action, d.RecheckAt = None, until
		d.Message = fmt.Sprintf("The Deployment was paused when it was restarted, and will be resumed at %s: the pause period is %v. Its new pods will read the content of that time.",
			until.UTC().Format(time.RFC3339), p.Period)
	}
	return d, true
}

// ResumePatch returns the JSON merge patch that ends the pause of a Deployment.
func (e *Evaluation) ResumePatch() ([]byte, error) {
	var fields object
	if e.Workload.Paused {
		fields = object{"spec": object{"paused": false}}
	}
	return patch(e.Workload, object{e.Policy.Pause.Key: nil}, fields)
}
