// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package judge

import "strings"

// Text says why a container has a verdict, without naming a source.
func (v *Verdict) Text() string {
	switch v.Reason {
	case ReasonNothingRead:
		return "It reads no ConfigMap or Secret whose content counts."
	case ReasonStartedAfter:
		return "It started after the content that it reads was last written."
	case ReasonSameContent:
		return "What it reads is the same as when it started."
	case ReasonCreatedFor:
		return "Its pod was created, or it was restarted in place, for the current content."
	case ReasonRecorded:
		return "It runs with the current content, according to the record on the workload."
	case ReasonOlderTemplate:
		return "Its pod has an older pod template, and it is not known what the container reads."
	}
	switch v.State {
	case NotStarted:
		return "It is not running. It will read the current content when it starts."
	case Stale:
		return "It runs with old content."
	default:
		return "It is not known whether it runs with the current content."
	}
}

// Text says why a container has a verdict on a source.
func (s *SourceVerdict) Text() string {
	name := string(s.Kind) + " " + s.Name
	switch s.Reason {
	case ReasonStartedBefore:
		return name + " has changed since the container started."
	case ReasonRecordDiffers:
		return "The container runs with other content of " + name + ", according to the record on the workload."
	case ReasonClockMargin:
		return "The container started at about the time when " + name + " changed. Clocks and the delays of kubelets can differ by " + s.margin() + "."
	case ReasonWrittenSinceStart:
		return name + " was written after the container started, while configdep did not read it. It is not known whether its content changed."
	case ReasonFilesChanged:
		return "The mounted files of " + name + " have changed since the container started. It is not known whether the application has read them again."
	case ReasonNodeClock:
		return "The clock of the node is wrong, so it is not known whether the container started before " + name + " changed."
	case ReasonSourceMissing:
		return name + ", or a key of it that the container requires, is missing, so there is nothing to compare with."
	default:
		return s.Verdict.Text()
	}
}

// margin returns how much the times of a start and a change can differ, such as "5s" or "2m".
func (s *SourceVerdict) margin() string {
	if s.File {
		return strings.TrimSuffix(VolumeMargin.String(), "0s")
	}
	return ClockMargin.String()
}
