// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	agentstatus "github.com/configdep/configdep/pkg/agent/status"
)

// RestarterOf returns the name of the container of a pod that restarts all of them in place (see package pkg/agent/restarter): one with a rule
// to restart all containers, and with a volume in which it sees status.RestartAnnotation. Of init containers, only one that keeps running
// counts. It returns "" if there is none.
func RestarterOf(pod *corev1.PodSpec) string {
	for i := range pod.InitContainers {
		c := &pod.InitContainers[i]
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways && restartsAll(c) && seesRestart(pod, c) {
			return c.Name
		}
	}
	for i := range pod.Containers {
		if c := &pod.Containers[i]; restartsAll(c) && seesRestart(pod, c) {
			return c.Name
		}
	}
	return ""
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
