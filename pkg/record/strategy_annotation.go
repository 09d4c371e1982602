// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"time"

	"github.com/configdep/configdep/pkg/dependency"
)

// Annotate is a rollout: the pod template gets the new hash.
var Annotate Strategy = annotate{}

type annotate struct{}

// Name implements Strategy.
func (annotate) Name() string { return "annotation" }

// NamesPods implements Strategy.
func (annotate) NamesPods() bool { return false }

// MarksTemplate implements Strategy.
func (annotate) MarksTemplate() bool { return true }

// Describe implements Strategy.
func (annotate) Describe(caveat string) Description {
	if caveat != "" { // pods stay as they are, all or some
		return Description{What: "rollout", Done: "has begun", Would: "would begin", Caveat: caveat}
	}
	return Description{What: "pods", Done: "are being replaced", Would: "would be replaced"}
}

// UnderWay implements Strategy: the controller of the workload does the rest.
func (annotate) UnderWay(*dependency.Workload) bool { return false }

// Progress implements Strategy.
func (annotate) Progress() Progress { return Progress{} }

func (annotate) begin(w *dependency.Workload, r *Restart, out *restartPatch) {
	out.template = object{ConfigHashAnnotation: r.Present.Hash}
	if !r.Always {
		return
	}
	at := r.Last.Time.UTC()
	if value := at.Format(time.RFC3339Nano); value != w.Marks.ReloadedAt {
		out.template[ReloadedAtAnnotation] = value
	} else { // made at the same time as the last one
		out.template[ReloadedAtAnnotation] = at.Add(time.Nanosecond).Format(time.RFC3339Nano)
	}
}
