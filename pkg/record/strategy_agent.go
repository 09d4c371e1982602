// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"fmt"
)

// Agent restarts nothing: config agents in the pods apply what changes, and report it. On request, the workload is restarted as if it
// asked for no strategy.
var Agent Strategy = agent{}

type agent struct{ annotate }

// Name implements Strategy.
func (agent) Name() string { return "agent" }

// MarksTemplate implements Strategy: no change of content is a rollout.
func (agent) MarksTemplate() bool { return false }

// PodsHave renders a clause such as "1 of 3 pods has applied the current content".
func PodsHave(some, all int, done string) string {
	if all == 1 {
		return fmt.Sprintf("%d of 1 pod has %s", some, done)
	}
	return fmt.Sprintf("%d of %d pods %s %s", some, all, Have(some), done)
}

// Have returns the verb for a number of pods.
func Have(n int) string {
	if n == 1 {
		return "has"
	}
	return "have"
}
