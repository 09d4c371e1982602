// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package podstate

import (
	"cmp"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
)

// Pod holds the parts of a pod that a verdict depends on.
type Pod struct {
	// Created is the API server's time, in whole seconds.
	Created time.Time
	// Version is the resourceVersion of the pod; 0 if it is not a number. Containers that have
	// started did so before it.
	Version uint64
	// Revision is the revision of the template that the pod was created from, or empty.
	Revision string
	// Hash is the hash of the content that the template was written for; empty if it has none.
	Hash string
	// Containers are the init containers, the containers and the ephemeral containers.
	Containers []Container
}

// Role is the role of a container in its pod.
type Role string

// The roles.
const (
	Init      Role = "Init"
	Sidecar   Role = "Sidecar"
	Regular   Role = "Regular"
	Ephemeral Role = "Ephemeral"
)

// Container holds the parts of a container that a verdict depends on.
type Container struct {
	Name string
	Role Role
	// Started is when it last started, by the clock of its node and in whole seconds; zero
	// if it has not, or if the kubelet does not know.
	Started time.Time
	// Waiting is why it has not started, or not started again; empty if it has started.
	Waiting string
	// Restarts counts its restarts in place.
	Restarts int32
	// Reads is what it reads, by source.
	Reads []dependency.Reference
}

// FromPod reads a pod.
func FromPod(o *corev1.Pod) *Pod {
	p := &Pod{
		Created: o.CreationTimestamp.Time, Version: dependency.ParseVersion(o.ResourceVersion),
		Revision: revisionOf(o), Hash: o.Annotations[policy.ConfigHashAnnotation],
	}
	references, _ := dependency.References(nil, &o.Spec)
	reads := readsOf(references)
	add := func(role Role, name string, statuses []corev1.ContainerStatus) {
		p.Containers = append(p.Containers, newContainer(role, name, statuses, reads[name]))
	}
	for i := range o.Spec.InitContainers {
		role := Init
		if restart := o.Spec.InitContainers[i].RestartPolicy; restart != nil && *restart == corev1.ContainerRestartPolicyAlways {
			role = Sidecar
		}
		add(role, o.Spec.InitContainers[i].Name, o.Status.InitContainerStatuses)
	}
	for i := range o.Spec.Containers {
		add(Regular, o.Spec.Containers[i].Name, o.Status.ContainerStatuses)
	}
	for i := range o.Spec.EphemeralContainers {
		add(Ephemeral, o.Spec.EphemeralContainers[i].Name, o.Status.EphemeralContainerStatuses)
	}
	return p
}

// rolloutHashLabel is the label of pods of a Rollout of Argo.
const rolloutHashLabel = "rollouts-pod-template-hash"

// revisionOf returns the label by which controllers identify the template of a pod.
func revisionOf(o *corev1.Pod) string {
	return cmp.Or(o.Labels[appsv1.DefaultDeploymentUniqueLabelKey], o.Labels[rolloutHashLabel], o.Labels[appsv1.ControllerRevisionHashLabelKey])
}

// readsOf returns what each container reads, by source.
func readsOf(references []dependency.Reference) map[string][]dependency.Reference {
	reads := map[string][]dependency.Reference{}
	for i := range references {
		r := &references[i]
		for j := range r.Uses {
			u := &r.Uses[j]
			if u.Container == "" || !u.Reads() {
				continue
			}
			own := reads[u.Container]
			if n := len(own); n == 0 || own[n-1].Kind != r.Kind || own[n-1].Name != r.Name {
				part := *r
				part.Uses = nil
				own = append(own, part)
			}
			last := &own[len(own)-1]
			last.Uses = append(last.Uses, *u)
			reads[u.Container] = own
		}
	}
	return reads
}

func newContainer(role Role, name string, statuses []corev1.ContainerStatus, reads []dependency.Reference) Container {
	c := Container{Name: name, Role: role, Waiting: "NotStarted", Reads: reads}
	if i := slices.IndexFunc(statuses, func(s corev1.ContainerStatus) bool { return s.Name == name }); i >= 0 {
		s := &statuses[i]
		c.Restarts = s.RestartCount
		switch {
		case s.State.Running != nil:
			c.Started, c.Waiting = s.State.Running.StartedAt.Time, ""
		case s.State.Terminated != nil: // such as an init container, which was started with some content
			c.Started, c.Waiting = s.State.Terminated.StartedAt.Time, ""
		case s.State.Waiting != nil && s.State.Waiting.Reason != "":
			c.Waiting = s.State.Waiting.Reason
		}
	}
	return c
}
