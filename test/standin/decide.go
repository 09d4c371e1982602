// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package standin

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// container returns the container of a workload to which a change of a source is told; nil: the workload is not restarted.
func (s *source) container(annotations map[string]string, template *corev1.PodTemplateSpec) *corev1.Container {
	named, all := s.selected(annotations, template.Annotations)
	if !named && !all || len(template.Spec.Containers) == 0 {
		return nil
	}
	if user := s.user(&template.Spec); user != nil || !named {
		return user
	}
	return &template.Spec.Containers[0] // a source that is named need not be read
}

// selected reports whether the annotations of a workload name the source, or select it among all that the pods read.
func (s *source) selected(workload, template map[string]string) (named, all bool) {
	if s.GetAnnotations()[ignore] == "true" {
		return false, false
	}
	for name := range strings.SplitSeq(workload[s.excluded], ",") {
		if strings.TrimSpace(name) == s.GetName() {
			return false, false
		}
	}
	from := workload
	if !slices.ContainsFunc([]string{s.reload, search, auto, s.auto}, func(key string) bool { _, found := workload[key]; return found }) {
		from = template
	}
	for expression := range strings.SplitSeq(from[s.reload], ",") {
		// Alternatives are not grouped: app|web names all that begins with app or ends with web.
		re, err := regexp.Compile("^" + strings.TrimSpace(expression) + "$")
		if err == nil && re.MatchString(s.GetName()) {
			return true, false
		}
	}
	if from[search] == "true" && s.GetAnnotations()[match] == "true" {
		return false, true
	}
	return false, isTrue(from[auto]) || isTrue(from[s.auto])
}

// isTrue reports whether a value is true. What is neither true nor false counts as false.
func isTrue(value string) bool {
	said, err := strconv.ParseBool(value)
	return err == nil && said
}

// user returns the first container that reads the source. If only an init container does, it is the first container that is none.
func (s *source) user(pod *corev1.PodSpec) *corev1.Container {
	for _, reads := range []func(*corev1.Container) bool{s.mountedBy(pod), s.inEnvironmentOf} {
		if i := indexOf(pod.Containers, reads); i >= 0 {
			return &pod.Containers[i]
		}
		if indexOf(pod.InitContainers, reads) >= 0 {
			return &pod.Containers[0]
		}
	}
	return nil
}

func indexOf(containers []corev1.Container, reads func(*corev1.Container) bool) int {
	for i := range containers {
		if reads(&containers[i]) {
			return i
		}
	}
	return -1
}

// mountedBy looks at the first volume with the source alone, whether or not it is mounted.
func (s *source) mountedBy(pod *corev1.PodSpec) func(*corev1.Container) bool {
	first := slices.IndexFunc(pod.Volumes, s.inVolume)
	return func(c *corev1.Container) bool {
		return first >= 0 && slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == pod.Volumes[first].Name })
	}
}

func (s *source) inVolume(v corev1.Volume) bool {
	switch {
	case v.ConfigMap != nil:
		return s.is(configMaps, v.ConfigMap.Name)
	case v.Secret != nil:
		return s.is(secrets, v.Secret.SecretName)
	case v.Projected != nil:
		return slices.ContainsFunc(v.Projected.Sources, func(p corev1.VolumeProjection) bool {
			return p.ConfigMap != nil && s.is(configMaps, p.ConfigMap.Name) || p.Secret != nil && s.is(secrets, p.Secret.Name)
		})
	default:
		return false
	}
}

func (s *source) inEnvironmentOf(c *corev1.Container) bool {
	return slices.ContainsFunc(c.Env, func(v corev1.EnvVar) bool {
		from := v.ValueFrom
		return from != nil && (from.ConfigMapKeyRef != nil && s.is(configMaps, from.ConfigMapKeyRef.Name) ||
			from.SecretKeyRef != nil && s.is(secrets, from.SecretKeyRef.Name))
	}) || slices.ContainsFunc(c.EnvFrom, func(from corev1.EnvFromSource) bool {
		return from.ConfigMapRef != nil && s.is(configMaps, from.ConfigMapRef.Name) || from.SecretRef != nil && s.is(secrets, from.SecretRef.Name)
	})
}
