// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"strings"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/metrics"
)

// Metrics counts restarts.
type Metrics struct{}

// Notify implements Sink.
func (Metrics) Notify(e Event) {
	result, counted := map[What]string{Restarted: metrics.Success, WouldRestart: metrics.Observed, RestartConflicted: metrics.Conflict, RestartFailed: metrics.Error}[e.What]
	if !counted {
		return
	}
	metrics.Rollout(string(e.Workload.Kind), e.Workload.Namespace, result, triggerLabel(e.Trigger))
	if e.What == Restarted && !e.DueAt.IsZero() {
		metrics.PatchDelay(e.At.Sub(e.DueAt))
	}
}

// The triggers of package policy besides the names of sources.
const (
	triggerRequest = "Request"
	triggerUnknown = "Unknown"
)

// triggerLabel returns the value of a label for a trigger: its kind, as there may be any number of names. A trigger may
// come from an annotation, which other clients can write, so that any other text is Unknown.
func triggerLabel(trigger string) string {
	kind, _, named := strings.Cut(trigger, "/")
	switch {
	case named && (kind == string(dependency.ConfigMap) || kind == string(dependency.Secret)), trigger == triggerRequest:
		return kind
	default:
		return triggerUnknown
	}
}
