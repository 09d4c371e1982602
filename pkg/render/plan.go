// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
)

// Starts says how long after now a restart begins.
func Starts(r *v1alpha1.PlannedRestart, now time.Time) string {
	switch {
	case r.StartTime == nil:
		return "unknown"
	case r.Position == 0:
		return duration.HumanDuration(now.Sub(r.StartTime.Time)) + " ago"
	case r.StartTime.Sub(now) < time.Second:
		return "now"
	}
	return "in " + duration.HumanDuration(r.StartTime.Sub(now))
}

// Takes says about how long a restart takes.
func Takes(r *v1alpha1.PlannedRestart) string {
	if r.StartTime == nil || r.CompletionTime == nil {
		return "<none>"
	}
	return duration.HumanDuration(r.CompletionTime.Sub(r.StartTime.Time))
}
