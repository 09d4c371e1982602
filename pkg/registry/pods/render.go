// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/podstate"
)

// render returns how a pod is shown.
func render(p *corev1.Pod, reduced *podstate.Pod, v podstate.PodVerdict) v1alpha1.PodContent {
	out := v1alpha1.PodContent{
		Name:              p.Name,
		UID:               p.UID,
		NodeName:          p.Spec.NodeName,
		Phase:             string(p.Status.Phase),
		CreationTimestamp: p.CreationTimestamp,
		DeletionTimestamp: p.DeletionTimestamp,
		TemplateRevision:  reduced.Revision,
		State:             v1alpha1.ContentState(v.State),
		Reason:            v.Reason,
		Message:           v.Message,
		StaleSources:      v.Stale,
		Containers:        make([]v1alpha1.ContainerContent, len(v.Containers)),
	}
	for i := range v.Containers {
		out.Containers[i] = renderContainer(&reduced.Containers[i], &v.Containers[i])
	}
	return out
}

func renderContainer(c *podstate.Container, v *podstate.ContainerVerdict) v1alpha1.ContainerContent {
	out := v1alpha1.ContainerContent{
		Name:         c.Name,
		Type:         v1alpha1.ContainerType(c.Role),
		RestartCount: c.Restarts,
		State:        v1alpha1.ContentState(v.State),
		Reason:       v.Reason,
		Message:      v.Message,
	}
	if !c.Started.IsZero() {
		at := metav1.NewTime(c.Started)
		out.StartedAt = &at
	}
	for i := range v.Sources {
		s := &v.Sources[i]
		source := v1alpha1.ContainerSource{
			Kind: v1alpha1.SourceKind(s.Kind), Name: s.Name,
			State: v1alpha1.ContentState(s.State), Reason: s.Reason, Message: s.Message,
		}
		// Clients can write managedFields, and a year with more than four digits cannot be encoded.
		if year := s.Changed.UTC().Year(); !s.Changed.IsZero() && 0 <= year && year <= 9999 {
			at := metav1.NewTime(s.Changed)
			source.LastChanged = &at
		}
		out.Sources = append(out.Sources, source)
	}
	return out
}

// count adds a pod to the summary.
func count(s *v1alpha1.PodSummary, p *v1alpha1.PodContent) {
	switch {
	case p.DeletionTimestamp != nil:
		s.Terminating++
	case p.State == v1alpha1.ContentStale:
		s.Stale++
	case p.State == v1alpha1.ContentUnknown:
		s.Unknown++
	case p.State == v1alpha1.ContentNotStarted:
		s.NotStarted++
	default:
		s.Current++
	}
}
