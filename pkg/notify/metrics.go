// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"strings"

	"github.com/configdep/configdep/pkg/metrics"
)

// Metrics counts restarts.
type Metrics struct{}

// Notify implements Sink.
func (Metrics) Notify(e Event) {
	result, counted := map[What]string{Restarted: metrics.Success, RestartConflicted: metrics.Conflict, RestartFailed: metrics.Error}[e.What]
	if !counted {
		return
	}
	trigger, _, _ := strings.Cut(e.Trigger, "/") // names of sources would be labels of any number
	metrics.Rollout(string(e.Workload.Kind), e.Workload.Namespace, result, trigger)
	if e.What == Restarted && !e.DueAt.IsZero() {
		metrics.PatchDelay(e.At.Sub(e.DueAt))
	}
}
