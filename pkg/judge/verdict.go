// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"cmp"
	"time"
)

// State says how the content that a container was started with relates to the current content.
type State string

// The states, from the best to the worst.
const (
	Current    State = "Current"
	NotStarted State = "NotStarted"
	Unknown    State = "Unknown"
	Stale      State = "Stale"
)

// The reasons of verdicts. For NotStarted, the reason comes from the kubelet.
const (
	ReasonNothingRead  = "NothingRead"  // Current: it reads no source that counts
	ReasonStartedAfter = "StartedAfter" // Current: it started after the content was last written
	ReasonSameContent  = "SameContent"  // Current: content has changed since it started, and is the same again
	ReasonCreatedFor   = "CreatedFor"   // Current: its pod was created for the current content
	ReasonRecorded     = "Recorded"     // Current: according to the record of the workload

	ReasonStartedBefore = "StartedBefore" // Stale: it started before the content changed
	ReasonRecordDiffers = "RecordDiffers" // Stale: it runs with the recorded content, which differs

	ReasonClockMargin       = "ClockMargin"       // Unknown: it started at about the time of the change
	ReasonWrittenSinceStart = "WrittenSinceStart" // Unknown: the source was written after the start, before configdep began to read it
	ReasonFilesChanged      = "FilesChanged"      // Unknown: mounted files have changed, which the application may have read again
	ReasonNodeClock         = "NodeClock"         // Unknown: the clock of its node is wrong
	ReasonSourceMissing     = "SourceMissing"     // Unknown: the source does not exist, or lacks a key that the container needs
	ReasonOlderTemplate     = "OlderTemplate"     // Unknown: its pod has an older pod template, of which it is not known what the container reads
	ReasonTooManyPods       = "TooManyPods"       // Unknown: the workload has so many pods and sources that not all pods are judged
)

// Verdict is a verdict on a container, or on one source that it reads.
type Verdict struct {
	State  State
	Reason string
	// Doubt: the container may have been started with other content, from a time that configdep has observed.
	Doubt bool
	// Since is the time of the first change that the container has not read, as far as that is known; zero: there is none.
	Since time.Time
	// Local: a process that began to read the source at another time may judge otherwise.
	Local bool
}

// SourceVerdict is the verdict on a source that a container reads.
type SourceVerdict struct {
	Verdict

	*Source

	// Index is the index of the source in Facts.
	Index int
	// File: it is about files of a volume.
	File bool
}

// ranks orders states. The verdict with the highest rank is reported.
var ranks = map[State]int{Current: 1, NotStarted: 5, Unknown: 6, Stale: 8}

func (v *Verdict) rank() int {
	switch {
	case v.State == Current && v.Reason == ReasonNothingRead:
		return 0
	case v.State == Current && v.Reason != ReasonStartedAfter:
		return ranks[Current] + 1
	case v.State == Unknown && v.Doubt:
		return ranks[Unknown] + 1
	default:
		return ranks[v.State]
	}
}

// Compare orders verdicts from the best to the worst, which is reported.
func (v *Verdict) Compare(other *Verdict) int { return cmp.Compare(v.rank(), other.rank()) }

func (v *Verdict) worsen(other Verdict) {
	since, local := v.Since, v.Local || other.Local
	if other.Compare(v) > 0 {
		*v = other
	}
	v.Local = local
	if v.State == Stale {
		v.Since = Earlier(v.Since, since)
	}
	if v.State == Stale && other.State == Stale {
		v.Since = Earlier(v.Since, other.Since)
	}
}
