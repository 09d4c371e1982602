// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"time"

	"github.com/configdep/configdep/pkg/dependency"
)

// Pause is how long a Deployment is paused when it is restarted, so that changes in the meantime are part of the same
// rollout. The pause is only in annotations, so whichever replica leads can resume the Deployment.
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

// Until returns when a pause ends; the zero time: at once, because the annotation that asked for it is gone, or the time
// at which it began is unknown or in the future.
func (p *Pause) Until(now time.Time) time.Time {
	since, err := time.Parse(time.RFC3339, p.Since)
	if err != nil || since.After(now.Add(dependency.MaxClockSkew)) {
		return time.Time{}
	}
	return since.Add(p.Period)
}

// Began reports whether the pause began with the last restart by configdep, and not with one by another tool.
func (p *Pause) Began(last *LastReload) bool {
	return last != nil && last.Time.UTC().Format(time.RFC3339) == p.Since
}

// ResumePatch returns the JSON merge patch that ends the pause of a Deployment.
func (p *Pause) ResumePatch(w *dependency.Workload) ([]byte, error) {
	var fields object
	if w.Paused {
		fields = object{"spec": object{"paused": false}}
	}
	return patch(w, object{p.Key: nil}, fields)
}
