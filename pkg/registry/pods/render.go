// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/podstate"
	"github.com/configdep/configdep/pkg/registry/view"
)

// How many bytes of an answer list containers, their sources, and the stale sources of pods; the rest is counted. The
// documentation of the API names them. How many pods there are is bounded (see maxPods).
const (
	maxContainerBytes   = 8 << 20
	maxSourceBytes      = 8 << 20
	maxStaleSourceBytes = 4 << 20
)

// renderer renders the pods of one answer.
type renderer struct {
	containers, sources, staleSources view.Budget // that are left
}

// render returns what is shown of a pod.
func (r *renderer) render(p *corev1.Pod, known *podstate.Knowledge) v1alpha1.PodContent {
	reduced := podstate.FromPod(p)
	v := known.Judge(reduced, func(s *podstate.SourceVerdict) bool { return r.sources.Take(sizeOfSource(s)) })
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
	}
	out.StaleSources, out.MoreStaleSources = view.Fit(&r.staleSources, v.Stale, func(s *string) int { return len(*s) + len(`"",`) })
	for i := range v.Containers {
		if !r.containers.Take(sizeOfContainer(&reduced.Containers[i], &v.Containers[i])) {
			out.MoreContainers = int64(len(v.Containers) - i)
			break
		}
		out.Containers = append(out.Containers, renderContainer(&reduced.Containers[i], &v.Containers[i]))
	}
	return out
}

// sizeOfSource is about how many bytes a source has in JSON.
func sizeOfSource(s *podstate.SourceVerdict) int {
	const rest = `{"kind":"","name":"","state":"","reason":"","message":"","lastChanged":"2006-01-02T15:04:05Z"},`
	return len(rest) + len(s.Kind) + len(s.Name) + len(s.State) + len(s.Reason) + len(s.Message)
}

// sizeOfContainer is about how many bytes a container has in JSON, without its sources.
func sizeOfContainer(c *podstate.Container, v *podstate.ContainerVerdict) int {
	const rest = `{"name":"","type":"","startedAt":"2006-01-02T15:04:05Z","restartCount":100,"state":"","reason":"","message":"","sources":[],"moreSources":1000},`
	return len(rest) + len(c.Name) + len(c.Role) + len(v.State) + len(v.Reason) + len(v.Message)
}

func renderContainer(c *podstate.Container, v *podstate.ContainerVerdict) v1alpha1.ContainerContent {
	out := v1alpha1.ContainerContent{
		Name:         c.Name,
		Type:         v1alpha1.ContainerType(c.Role),
		RestartCount: c.Restarts,
		State:        v1alpha1.ContentState(v.State),
		Reason:       v.Reason,
		Message:      v.Message,
		MoreSources:  int64(v.More),
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
