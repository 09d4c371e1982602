// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package notify

import "github.com/configdep/configdep/pkg/metrics"

// Metrics counts restarts.
type Metrics struct{}

// Notify implements Sink.
func (Metrics) Notify(e Event) {
	result, counted := map[What]string{Restarted: metrics.Success, ContentChanged: metrics.Observed, FieldsSet: metrics.Success, WouldRestart: metrics.Observed, RestartConflicted: metrics.Conflict, RestartFailed: metrics.Error}[e.What]
	if !counted {
		return
	}
	metrics.Rollout(string(e.Workload.Kind), e.Workload.Namespace, result, triggerLabel(&e))
	if e.What == Restarted && !e.DueAt.IsZero() {
		metrics.PatchDelay(e.At.Sub(e.DueAt))
	}
}

// The triggers of package record besides the names of sources.
const (
	triggerRequest = "Request"
	triggerUnknown = "Unknown"
)

// triggerLabel returns the value of a label for the trigger of an event: its kind, as there may be any number of names.
func triggerLabel(e *Event) string {
	kind, _, isSource := e.Source()
	switch {
	case isSource:
		return string(kind)
	case e.Trigger == triggerRequest:
		return triggerRequest
	default:
		return triggerUnknown
	}
}
