// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package notify reports what happened to workloads: the code in which it happens creates one Event, and each Sink
// turns it into what its readers need. A sink is one file, and one line where the server is composed.
package notify

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/configdep/configdep/pkg/dependency"
)

// What says what happened to a workload.
type What string

// The values of What.
const (
	Restarted         What = "Restarted"
	ContentChanged    What = "ContentChanged"    // of a workload that configdep cannot restart
	FieldsSet         What = "FieldsSet"         // because the content has changed that they get their values from
	WouldRestart      What = "WouldRestart"      // but the server only observes
	RestartFailed     What = "RestartFailed"     // it will be retried
	RestartConflicted What = "RestartConflicted" // the workload had changed, so that it is decided again
	RestartWaits      What = "RestartWaits"      // its next step, such as an eviction, has to wait
	LookUpFailed      What = "LookUpFailed"      // which content the pods were started with, or an eviction; it will be retried
	RecordFailed      What = "RecordFailed"      // recording that content; it will be retried
	Reverted          What = "Reverted"          // another client keeps reverting what configdep writes
	SwitchedOff       What = "SwitchedOff"       // automatic restarts were on, and are off now
	Approval          What = "Approval"          // a user has approved or denied the content
	PodsFailing       What = "PodsFailing"       // pods fail since the workload was restarted
	PodRestarting     What = "PodRestarting"     // a pod was told to restart in place
	PodRestarted      What = "PodRestarted"      // a pod has restarted in place

	// Automatic restarts are on hold until a user acts.
	InvalidAnnotation  What = "InvalidAnnotation"
	TooManyPatterns    What = "TooManyPatterns"
	StrategyNotAllowed What = "StrategyNotAllowed"
	TooManySources     What = "TooManySources"
	SourceMissing      What = "SourceMissing"
	FieldsNotAllowed   What = "FieldsNotAllowed"
	FieldConflict      What = "FieldConflict"
	FieldsRefused      What = "FieldsRefused"
)

// Whats returns all values of What.
func Whats() []What {
	return []What{
		Restarted, ContentChanged, FieldsSet, WouldRestart, RestartFailed, RestartConflicted, RestartWaits, LookUpFailed, RecordFailed, Reverted, SwitchedOff, Approval, PodsFailing,
		PodRestarting, PodRestarted,
		InvalidAnnotation, TooManyPatterns, StrategyNotAllowed, TooManySources, SourceMissing, FieldsNotAllowed, FieldConflict, FieldsRefused,
	}
}

// Event is something that happened to a workload.
type Event struct {
	What     What
	Workload dependency.WorkloadKey
	UID      types.UID
	// Pod is the pod of the workload to which it happened; nil: it did not happen to one alone.
	Pod *Pod
	// Message says to users what happened and why, in a sentence.
	Message string
	// Trigger is the cause of a restart: a source, such as Secret/db, or one of the triggers of package
	// policy.
	Trigger string
	// RequestedBy is the name of the user who asked for a restart; empty: none did.
	RequestedBy string
	// At is the time of a restart, and DueAt is when it was due; zero: that is not known.
	At, DueAt time.Time
}

// Pod names a pod.
type Pod struct {
	Name string
	UID  types.UID
}

// Source returns the kind and the name, or the pattern, of the source that caused a restart. It returns false if a user
// did, or if the cause is not known: a trigger may come from an annotation, which other clients can write.
func (e *Event) Source() (kind dependency.SourceKind, name string, found bool) {
	text, name, _ := strings.Cut(e.Trigger, "/")
	kind = dependency.SourceKind(text)
	if name == "" || kind != dependency.ConfigMap && kind != dependency.Secret && kind != dependency.SecretProviderClass {
		return "", "", false
	}
	return kind, name, true
}

// Sink receives events, and must not block.
type Sink interface {
	Notify(Event)
}

// Sinks are notified in order.
type Sinks []Sink

// Notify implements Sink.
func (s Sinks) Notify(e Event) {
	for _, sink := range s {
		sink.Notify(e)
	}
}
