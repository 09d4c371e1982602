// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	agentstatus "github.com/configdep/configdep/pkg/agent/status"
)

// Restarter is the container of a pod that restarts all of them in place; see package pkg/agent/restarter.
type Restarter struct {
	Name string
	// Sidecar: it is an init container that keeps running, so that it starts before the regular containers.
	Sidecar bool
}

// RestarterOf returns the restarter of a pod. It returns false if there is none: a container with a rule to restart all containers, and with
// a volume in which it sees status.RestartAnnotation.
func RestarterOf(pod *corev1.PodSpec) (r Restarter, found bool) {
	for i := range pod.InitContainers {
		c := &pod.InitContainers[i]
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways && restartsAll(c) && seesRestart(pod, c) {
			return Restarter{c.Name, true}, true
		}
	}
	for i := range pod.Containers {
		if c := &pod.Containers[i]; restartsAll(c) && seesRestart(pod, c) {
			return Restarter{c.Name, false}, true
		}
	}
	return Restarter{}, false
}

func restartsAll(c *corev1.Container) bool {
	return slices.ContainsFunc(c.RestartPolicyRules, func(r corev1.ContainerRestartRule) bool {
		return r.Action == corev1.ContainerRestartRuleActionRestartAllContainers
	})
}

// seesRestart reports whether a container mounts a volume with status.RestartAnnotation. The kubelet does not update a mount of a single file.
func seesRestart(pod *corev1.PodSpec, c *corev1.Container) bool {
	shows := func(f corev1.DownwardAPIVolumeFile) bool {
		return f.FieldRef != nil && f.FieldRef.FieldPath == "metadata.annotations['"+agentstatus.RestartAnnotation+"']"
	}
	return slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool {
		mounts := func(m corev1.VolumeMount) bool { return m.Name == v.Name && m.SubPath == "" && m.SubPathExpr == "" }
		if !slices.ContainsFunc(c.VolumeMounts, mounts) {
			return false
		}
		if v.DownwardAPI != nil {
			return slices.ContainsFunc(v.DownwardAPI.Items, shows)
		}
		return v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(p corev1.VolumeProjection) bool {
			return p.DownwardAPI != nil && slices.ContainsFunc(p.DownwardAPI.Items, shows)
		})
	})
}
