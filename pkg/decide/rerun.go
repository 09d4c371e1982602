// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"time"

	"github.com/configdep/configdep/pkg/record"
)

// decideCopy decides for the copy of a Job.
func (e *Evaluation) decideCopy() (d Decision, is bool) {
	of, is := record.CopyOf(e.Workload)
	if !is {
		return Decision{}, false
	}
	d = Decision{State: RollingOut, Reason: record.ReasonReplacing,
		Message: "This is a suspended copy of Job " + of.Name + ", which is being replaced. It is deleted after that."}
	if !e.graph.Terminating(e.Workload) {
		d.Action = Continue
	}
	return d, true
}

// reruns reports whether the workload is to be run again. A Job with an owner is not, because the owner would also create it again.
func (e *Evaluation) reruns() bool {
	return e.Policy.Reruns && (e.Workload.Recurring || !e.Workload.Owned)
}

// decideRerun decides for workloads that are Traits.Reruns but are not to be run again. It returns false for the others.
func (e *Evaluation) decideRerun(j *Judgement, now time.Time) (d Decision, decided bool) {
	w := e.Workload
	underWay := record.UnderWay(w) != nil // begun before that
	switch {
	case !e.Policy.Reruns:
		d = e.decideOther(j)
		if w.Marks.Hash != "" || w.Marks.Sources != "" || w.Marks.Recreating != "" {
			d.Action = Forget
		}
		return d, true
	case !e.reruns():
		d = e.decideOther(j)
		if d.State == Stale {
			d.Reason, d.Message = ReasonOwned, "configdep does not replace a "+string(w.Kind)+" that another object owns: its owner would create it again."
		}
	case len(e.Policy.Problems) > 0, w.Truncated, !w.Suspended:
		return Decision{}, false
	default:
		d = Decision{State: InSync, Reason: ReasonSuspended,
			Message: "The " + string(w.Kind) + " is suspended. What it runs after that reads the current content, so changes until then start nothing."}
		switch { // of a run that is active
		case j.Stale > 0:
			e.tellStale(&d, j)
		case j.Unknown > 0:
			d.State, d.Reason, d.Message = Unknown, j.Reason, e.unknown(j)
		}
		underWay = underWay || e.Record.Hash != e.Hash || e.Record.Sources == nil
	}
	if underWay {
		d.Action, d.Record = WriteRecord, e.Present()
		d.Record.At = now
	}
	return d, true
}
