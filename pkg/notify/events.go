// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package notify

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/configdep/configdep/pkg/kind"
)

// KubernetesEvents creates Kubernetes Events on the workloads.
type KubernetesEvents struct {
	Recorder record.EventRecorder
	Kinds    kind.Table
}

// reasons are the reasons of Events, by what happened. They are an API, and begin with "Config". There is no Event for what is
// missing here.
var reasons = map[What]struct{ eventType, reason string }{
	Restarted:          {corev1.EventTypeNormal, "ConfigRestarted"},
	ContentChanged:     {corev1.EventTypeNormal, "ConfigChanged"},
	FieldsSet:          {corev1.EventTypeNormal, "ConfigFieldsSet"},
	WouldRestart:       {corev1.EventTypeNormal, "ConfigRestartObserved"},
	RestartFailed:      {corev1.EventTypeWarning, "ConfigRestartFailed"},
	RestartWaits:       {corev1.EventTypeNormal, "ConfigRestartWaiting"},
	LookUpFailed:       {corev1.EventTypeWarning, "ConfigRestartFailed"},
	RecordFailed:       {corev1.EventTypeWarning, "ConfigRecordFailed"},
	Reverted:           {corev1.EventTypeWarning, "ConfigConflict"},
	SwitchedOff:        {corev1.EventTypeNormal, "ConfigRestartsOff"},
	Approval:           {corev1.EventTypeNormal, "ConfigApproval"},
	PodsFailing:        {corev1.EventTypeWarning, "ConfigPodsFailing"},
	PodRestarting:      {corev1.EventTypeNormal, "ConfigRestartingInPlace"},
	PodRestarted:       {corev1.EventTypeNormal, "ConfigRestartedInPlace"},
	InvalidAnnotation:  {corev1.EventTypeWarning, "ConfigInvalidAnnotation"},
	TooManyPatterns:    {corev1.EventTypeWarning, "ConfigTooManyPatterns"},
	StrategyNotAllowed: {corev1.EventTypeWarning, "ConfigStrategyNotAllowed"},
	TooManySources:     {corev1.EventTypeWarning, "ConfigTooManySources"},
	SourceMissing:      {corev1.EventTypeWarning, "ConfigSourceMissing"},
	FieldsNotAllowed:   {corev1.EventTypeWarning, "ConfigFieldsNotAllowed"},
	FieldConflict:      {corev1.EventTypeWarning, "ConfigFieldConflict"},
	FieldsRefused:      {corev1.EventTypeWarning, "ConfigFieldsRefused"},
}

// Notify implements Sink.
func (k KubernetesEvents) Notify(e Event) {
	as, told := reasons[e.What]
	if !told {
		return
	}
	ref := &corev1.ObjectReference{Kind: string(e.Workload.Kind), Namespace: e.Workload.Namespace, Name: e.Workload.Name, UID: e.UID}
	if of := k.Kinds.Of(e.Workload.Kind); of != nil {
		ref.APIVersion, ref.Kind = of.GroupVersionKind().ToAPIVersionAndKind()
	}
	if p := e.Pod; p != nil {
		ref = &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: e.Workload.Namespace, Name: p.Name, UID: p.UID}
	}
	k.Recorder.Event(ref, as.eventType, as.reason, e.Message)
}
