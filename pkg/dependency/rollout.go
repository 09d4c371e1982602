// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import "fmt"

// RolloutPhase says how far the controller of a workload has brought its pods to the
// current template.
type RolloutPhase string

// The phases of a rollout.
const (
	RolloutComplete RolloutPhase = "Complete"
	RolloutRunning  RolloutPhase = "Running"
	// RolloutHeld: some pods are replaced only when a user acts (OnDelete, a partition,
	// a paused Deployment).
	RolloutHeld   RolloutPhase = "Held"
	RolloutFailed RolloutPhase = "Failed"
)

// Rollout is what the status of a workload reports about its rollout. The rules are those
// of kubectl rollout status.
type Rollout struct {
	Phase RolloutPhase
	// Reason is a word, and Message a clause, for a phase other than Complete.
	Reason, Message string
}

// ReasonNotObserved is the reason of a rollout whose controller has yet to see the
// current template.
const ReasonNotObserved = "NotObserved"

// Pods renders "1 of 3 pods".
func Pods(some, all int) string {
	if all == 1 {
		return fmt.Sprintf("%d of 1 pod", some)
	}
	return fmt.Sprintf("%d of %d pods", some, all)
}

// SomePods renders a clause such as "1 of 3 pods is ready".
func SomePods(some, all int32, what string) string {
	pods, are := "pods", "are"
	if all == 1 {
		pods = "pod"
	}
	if some == 1 || all == 1 {
		are = "is"
	}
	return fmt.Sprintf("%d of %d %s %s %s", some, all, pods, are, what)
}
