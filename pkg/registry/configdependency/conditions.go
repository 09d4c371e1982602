// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package configdependency

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
)

// conditions returns the conditions of a workload. No condition is stored, so the times of
// transitions are derived from the cluster: when the last of the workload and its sources
// was created, when content was last written, and when the workload was last restarted.
func conditions(e *policy.Evaluation, d policy.Decision) []metav1.Condition {
	created, written := e.Workload.Created, e.Workload.Created
	for i := range e.Sources {
		if s := e.Sources[i].Source; s != nil {
			created, written = later(created, s.Created), later(written, s.LastChanged)
		}
		if u := e.Sources[i].Unread; u != nil {
			created = later(created, u.Created)
		}
	}
	for i := range e.Agents.Sources {
		if s := e.Agents.Sources[i].Source; s != nil {
			written = later(written, s.LastChanged)
		}
	}
	for i := range e.Globs {
		written = later(written, e.Globs[i].LastChanged())
	}
	if last := policy.LastReloadOf(e.Workload); last != nil {
		written = later(written, metav1.NewTime(last.Time.Time))
	}
	return []metav1.Condition{
		sourcesResolved(e, created),
		inSync(e, d, written),
		rolloutComplete(e, d, written),
	}
}

// later returns the later of two times, the second only if clients can read it.
func later(a, b metav1.Time) metav1.Time {
	if a.Before(&b) && readable(b) {
		return b
	}
	return a
}

func sourcesResolved(e *policy.Evaluation, since metav1.Time) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionSourcesResolved, LastTransitionTime: since}
	missing, absent := e.Missing()
	if len(missing) == 0 {
		c.Status, c.Reason = metav1.ConditionTrue, v1alpha1.ReasonAllPresent
		c.Message = "Everything that pods need to start is present."
		return c
	}
	c.Status, c.Reason = metav1.ConditionFalse, v1alpha1.ReasonKeyMissing
	if absent {
		c.Reason = v1alpha1.ReasonSourceMissing
	}
	c.Message = strings.Join(missing, "; ") + ": " + e.Consequence() + "."
	return c
}

func inSync(e *policy.Evaluation, d policy.Decision, since metav1.Time) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionInSync, LastTransitionTime: since, Reason: d.Reason, Message: d.Message}
	switch {
	case d.State == policy.Unmanaged, d.Reason == policy.ReasonNotRecorded, d.Reason == policy.ReasonVerifying, d.Reason == policy.ReasonAgentsSilent:
		c.Status = metav1.ConditionUnknown
	case d.State == policy.Blocked && e.Workload.Idle: // no pod runs with other content
		c.Status = metav1.ConditionTrue
	case d.State == policy.Blocked && (!d.Stale && e.InDoubt() || !e.Comparable()):
		// Without a record, one replica may have seen a change of the content that another replica, started later,
		// has not. Both must show the same status, and no record is written while restarts are on hold.
		c.Status = metav1.ConditionUnknown
	case d.State == policy.InSync && (d.Action == policy.None || d.Reason == policy.ReasonRecordRemoved):
		c.Status = metav1.ConditionTrue
	case d.State == policy.InSync:
		// The record has yet to be written.
		c.Status = metav1.ConditionUnknown
	case d.State == policy.Blocked && !d.Stale && e.Record.Hash == e.Hash && e.Workload.Marks.Recreating == "":
		c.Status = metav1.ConditionTrue
	default:
		c.Status = metav1.ConditionFalse
	}
	return c
}

func rolloutComplete(e *policy.Evaluation, d policy.Decision, since metav1.Time) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionRolloutComplete, LastTransitionTime: since}
	rollout, underWay := e.Workload.Rollout, policy.UnderWay(e.Workload)
	switch {
	case rollout.Phase == "":
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, "NoRollout", "Workloads of this kind have no rollout."
	case underWay != nil && (d.Reason == underWay.Progress().Reason || d.Reason == policy.ReasonRestartFailed):
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, d.Reason, d.Message
	case rollout.Phase == dependency.RolloutComplete:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, "Complete", "All pods are up to date with the template."
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, rollout.Reason, strings.ToUpper(rollout.Message[:1])+rollout.Message[1:]+"."
	}
	return c
}
