// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/configdep/configdep/pkg/dependency"
)

// Inspection is what was found out about pods when Decide said Inspect.
type Inspection struct {
	// Of are the excursions that Decide asked about.
	Of []Excursion
	// StartedBy is copied from the workload. If it differs now, the template has been written since, and
	// the inspection is void.
	StartedBy uint64
	// Mixed are the IDs of the excursions in which a container may have been started.
	Mixed []string
	// Unreported: a container that seems to be waiting may have been started in one of the other excursions, because
	// its kubelet need not have reported that yet. The pods have to be looked up again.
	Unreported bool
}

// of reports whether an inspection is about the given excursions and the current template.
func (i *Inspection) of(w *dependency.Workload, excursions []Excursion) bool {
	return i != nil && i.StartedBy == w.StartedBy && slices.EqualFunc(i.Of, excursions, Excursion.same)
}

// InspectPods finds out in which excursions a container may have been started, so that it may have read the content
// of that time. A container that is waiting will read the current content, once its kubelet has reported that it has
// not been started. Each calls look for every pod in sequence; if it fails, so does InspectPods.
func InspectPods(excursions []Excursion, each func(look func(*corev1.Pod)) error) (*Inspection, error) {
	mixed := make([]bool, len(excursions))
	found := &Inspection{}
	err := each(func(p *corev1.Pod) {
		pod := lookAt(p)
		for i := range excursions {
			mixed[i] = mixed[i] || excursions[i].mayHaveBeenReadBy(pod)
			found.Unreported = found.Unreported || excursions[i].mayBeReadUnreported(pod)
		}
	})
	if err != nil {
		return nil, err
	}
	for i := range excursions {
		if mixed[i] {
			found.Mixed = append(found.Mixed, excursions[i].ID)
		}
	}
	return found, nil
}

// pod is a pod with what its kubelet says of its containers, by their names.
type pod struct {
	*corev1.Pod
	statuses map[string]*corev1.ContainerStatus
}

func lookAt(p *corev1.Pod) pod {
	out := pod{p, make(map[string]*corev1.ContainerStatus, len(p.Status.InitContainerStatuses)+len(p.Status.ContainerStatuses))}
	for _, statuses := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for i := range statuses {
			out.statuses[statuses[i].Name] = &statuses[i]
		}
	}
	return out
}

// anyReader reports whether f is true for the status of a container that may have read the content of an
// excursion.
func (x *Excursion) anyReader(p pod, f func(*corev1.ContainerStatus) bool) bool {
	if len(x.Containers) == 0 {
		for _, s := range p.statuses {
			if f(s) {
				return true
			}
		}
		return false
	}
	return slices.ContainsFunc(x.Containers, func(name string) bool {
		s, found := p.statuses[name]
		return found && f(s)
	})
}

// mayBeReadUnreported reports whether a pod is old enough for a container to have been started in an excursion, and one
// of them is waiting for a reason that the API server or the kubelet sets before anything is started. The kubelet
// reports started containers only when it has started all of them, and it pulls their images in sequence.
func (x *Excursion) mayBeReadUnreported(p pod) bool {
	if p.CreationTimestamp.After(x.To.Add(dependency.ClockMargin)) {
		return false
	}
	if p.Status.Phase == corev1.PodPending && p.Spec.NodeName != "" && len(p.Status.ContainerStatuses) == 0 {
		return true
	}
	return x.anyReader(p, func(s *corev1.ContainerStatus) bool {
		w := s.State.Waiting
		return w != nil && (w.Reason == "" || w.Reason == "ContainerCreating" || w.Reason == "PodInitializing") && s.RestartCount == 0
	})
}

func (x *Excursion) mayHaveBeenReadBy(p pod) bool {
	return x.anyReader(p, func(s *corev1.ContainerStatus) bool {
		var started time.Time
		switch {
		case s.State.Running != nil:
			started = s.State.Running.StartedAt.Time
		case s.State.Terminated != nil:
			started = s.State.Terminated.StartedAt.Time
		default:
			return false
		}
		return !started.After(x.To.Add(dependency.ClockMargin)) && (x.From.IsZero() || !started.Before(x.From.Add(-dependency.ClockMargin)))
	})
}
