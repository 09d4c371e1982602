// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
)

// conditions returns the conditions of a workload. No condition is stored, so the times of
// transitions are derived from the cluster: when the last of the workload and its sources
// was created, when content was last written, and when the workload was last restarted.
func conditions(e *decide.Evaluation, d decide.Decision) []metav1.Condition {
	created, written := e.Workload.Created, e.Workload.Created
	for i := range e.Sources {
		if s := e.Sources[i].Source; s != nil {
			created, written = later(created, s.Created), later(written, s.LastChangeTime)
		}
		if u := e.Sources[i].Unread; u != nil {
			created = later(created, u.Created)
		}
	}
	for i := range e.Agents.Sources {
		if s := e.Agents.Sources[i].Source; s != nil {
			written = later(written, s.LastChangeTime)
		}
	}
	if last := record.LastReloadOf(e.Workload); last != nil {
		written = later(written, metav1.NewTime(last.Time.Time))
	}
	return []metav1.Condition{
		sourcesResolved(e, created),
		inSync(e, d, written),
		rolloutComplete(e, d, written),
		summary(v1alpha1.ConditionReady, ready[d.State], d, written),
		summary(v1alpha1.ConditionReconciling, is(d.State, decide.Settling, decide.Pending, decide.RollingOut), d, written),
		summary(v1alpha1.ConditionStalled, is(d.State, decide.Stale, decide.Blocked, decide.Failed), d, written),
	}
}

// ready is the status of the condition Ready in each state.
var ready = map[decide.State]metav1.ConditionStatus{
	decide.InSync: metav1.ConditionTrue, decide.Unknown: metav1.ConditionUnknown,
	decide.Stale: metav1.ConditionFalse, decide.Settling: metav1.ConditionFalse, decide.Pending: metav1.ConditionFalse,
	decide.RollingOut: metav1.ConditionFalse, decide.Failed: metav1.ConditionFalse, decide.Blocked: metav1.ConditionFalse,
}

func is(state decide.State, among ...decide.State) metav1.ConditionStatus {
	if slices.Contains(among, state) {
		return metav1.ConditionTrue
	}
	return metav1.ConditionFalse
}

// summary returns a condition that follows from the state.
func summary(typ string, status metav1.ConditionStatus, d decide.Decision, since metav1.Time) metav1.Condition {
	return metav1.Condition{Type: typ, Status: status, LastTransitionTime: since, Reason: string(d.State), Message: d.Message}
}

// later returns the later of two times, the second only if clients can read it.
func later(a, b metav1.Time) metav1.Time {
	if a.Before(&b) && readable(b) {
		return b
	}
	return a
}

func sourcesResolved(e *decide.Evaluation, since metav1.Time) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionSourcesResolved, LastTransitionTime: since}
	missing, absent := e.Missing()
	if len(missing) == 0 {
		c.Status, c.Reason = metav1.ConditionTrue, v1alpha1.ReasonAllPresent
		c.Message = "Everything that pods need to start is present."
		if i := slices.IndexFunc(e.Sources, func(s decide.Source) bool { return s.Awaited }); i >= 0 {
			c.Message = fmt.Sprintf("Secret %s is absent. The driver of a SecretProviderClass may create it once a pod mounts that.", e.Sources[i].Name)
		}
		return c
	}
	c.Status, c.Reason = metav1.ConditionFalse, v1alpha1.ReasonKeyMissing
	if absent {
		c.Reason = v1alpha1.ReasonSourceMissing
	}
	c.Message = strings.Join(missing, "; ") + ": " + e.Consequence() + "."
	return c
}

// inSync tells what the pods run with, whatever is done about it. Where agents apply content, their reports tell.
func inSync(e *decide.Evaluation, d decide.Decision, since metav1.Time) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionInSync, LastTransitionTime: since, Reason: d.Reason, Message: d.Message}
	switch {
	case d.Pods.Stale > 0:
		c.Status = metav1.ConditionFalse
	case d.State == decide.InSync:
		c.Status = metav1.ConditionTrue
	case d.Pods.Unknown > 0, d.State == decide.Unknown, d.Reason == decide.ReasonAgentsSilent, e.Workload.Truncated:
		c.Status = metav1.ConditionUnknown
	case d.Stale, e.Policy.Strategy == record.Agent && e.Policy.Mode != policy.Off:
		c.Status = metav1.ConditionFalse
	default: // the state is about something else
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, decide.ReasonContentApplied, "The pods run with the current content, or read it when they start."
	}
	return c
}

func rolloutComplete(e *decide.Evaluation, d decide.Decision, since metav1.Time) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionRolloutComplete, LastTransitionTime: since}
	rollout, underWay := e.Workload.Rollout, record.UnderWay(e.Workload)
	switch {
	case rollout.Phase == "":
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, "NoRollout", "Workloads of this kind have no rollout."
	case underWay != nil && (d.Reason == underWay.Progress().Reason || d.Reason == decide.ReasonRestartFailed):
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, d.Reason, d.Message
	case rollout.Phase == dependency.RolloutComplete:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, "Complete", "All pods are up to date with the template."
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, rollout.Reason, strings.ToUpper(rollout.Message[:1])+rollout.Message[1:]+"."
	}
	return c
}
