// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"fmt"
	"strings"
	"unicode"
)

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
	// Words is what the controller itself reports about a failure to create pods or to roll out, as Line returns it; empty: nothing.
	Words string
}

// ReasonNotObserved is the reason of a rollout whose controller has yet to see the
// current template.
const ReasonNotObserved = "NotObserved"

// maxLine limits what Line returns, in bytes.
const maxLine = 512

// Line returns a text that any client may have written as one line of printable characters, without what exceeds maxLine.
func Line(text string) string {
	if len(text) > maxLine {
		text = text[:maxLine-len("…")] + "…"
	}
	return strings.Join(strings.Fields(strings.Map(Printable, strings.ToValidUTF8(text, ""))), " ")
}

// Printable replaces what is not for a line of text by a space.
func Printable(r rune) rune {
	if unicode.IsPrint(r) {
		return r
	}
	return ' '
}

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
