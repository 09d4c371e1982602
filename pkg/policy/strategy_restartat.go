// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"github.com/configdep/configdep/pkg/dependency"
)

// RestartAt sets spec.restartAt of a workload whose kind has it: its controller replaces the pods, and its template stays as
// it is.
var RestartAt Strategy = restartAt{}

type restartAt struct{}

// Name implements Strategy.
func (restartAt) Name() string { return "restart-at" }

// NamesPods implements Strategy.
func (restartAt) NamesPods() bool { return false }

// MarksTemplate implements Strategy.
func (restartAt) MarksTemplate() bool { return false }

// Describe implements Strategy.
func (restartAt) Describe(caveat string) Description {
	return Description{What: "pods", Done: "are being restarted", Would: "would be restarted", Caveat: caveat}
}

// UnderWay implements Strategy: the controller of the workload does the rest.
func (restartAt) UnderWay(*dependency.Workload) bool { return false }

// Progress implements Strategy.
func (restartAt) Progress() Progress { return Progress{} }

func (restartAt) begin(w *dependency.Workload, _ *Restart, out *restartPatch) {
	out.set([]string{"spec", "restartAt"}, out.second(w))
}

func (restartAt) end(*dependency.Workload, object) {}
