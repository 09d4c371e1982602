// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package decide_test

import (
	"maps"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/ingest/ingesttest"
	"github.com/configdep/configdep/pkg/record"
)

func configMap(name string, pairs ...string) *corev1.ConfigMap {
	return ingesttest.ConfigMap(name, pairs...)
}

func secret(name string, pairs ...string) *corev1.Secret { return ingesttest.Secret(name, pairs...) }

func annotated[T metav1.Object](o T, pairs ...string) T {
	a := maps.Clone(o.GetAnnotations())
	if a == nil {
		a = map[string]string{}
	}
	for i := 0; i < len(pairs); i += 2 {
		a[pairs[i]] = pairs[i+1]
	}
	o.SetAnnotations(a)
	return o
}

// part adds a reference to a source to a pod.
type part func(*corev1.PodSpec)

func podOf(parts ...part) corev1.PodSpec {
	pod := corev1.PodSpec{Containers: []corev1.Container{{Name: "app"}}}
	for _, p := range parts {
		p(&pod)
	}
	return pod
}

func env(kind dependency.SourceKind, name, key string) part { return envOf(kind, name, key, false) }

func optionalEnv(kind dependency.SourceKind, name, key string) part {
	return envOf(kind, name, key, true)
}

func envOf(kind dependency.SourceKind, name, key string, optional bool) part {
	return func(pod *corev1.PodSpec) {
		from := &corev1.EnvVarSource{}
		ref := corev1.LocalObjectReference{Name: name}
		if kind == dependency.Secret {
			from.SecretKeyRef = &corev1.SecretKeySelector{LocalObjectReference: ref, Key: key, Optional: &optional}
		} else {
			from.ConfigMapKeyRef = &corev1.ConfigMapKeySelector{LocalObjectReference: ref, Key: key, Optional: &optional}
		}
		c := &pod.Containers[0]
		c.Env = append(c.Env, corev1.EnvVar{Name: "V" + strconv.Itoa(len(c.Env)), ValueFrom: from})
	}
}

func envFrom(kind dependency.SourceKind, name string) part { return envFromOf(kind, name, false) }

func optionalEnvFrom(kind dependency.SourceKind, name string) part {
	return envFromOf(kind, name, true)
}

func envFromOf(kind dependency.SourceKind, name string, optional bool) part {
	return func(pod *corev1.PodSpec) {
		from := corev1.EnvFromSource{}
		ref := corev1.LocalObjectReference{Name: name}
		if kind == dependency.Secret {
			from.SecretRef = &corev1.SecretEnvSource{LocalObjectReference: ref, Optional: &optional}
		} else {
			from.ConfigMapRef = &corev1.ConfigMapEnvSource{LocalObjectReference: ref, Optional: &optional}
		}
		c := &pod.Containers[0]
		c.EnvFrom = append(c.EnvFrom, from)
	}
}

// volume mounts a whole source, or the file of one key by its subPath.
func volume(kind dependency.SourceKind, name, subPath string) part {
	return func(pod *corev1.PodSpec) {
		unmounted(kind, name)(pod)
		v := pod.Volumes[len(pod.Volumes)-1].Name
		c := &pod.Containers[0]
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: v, MountPath: "/etc/" + v, SubPath: subPath})
	}
}

// unmounted makes a volume that no container mounts.
func unmounted(kind dependency.SourceKind, name string) part {
	return func(pod *corev1.PodSpec) {
		v := corev1.Volume{Name: "v" + strconv.Itoa(len(pod.Volumes))}
		if kind == dependency.Secret {
			v.Secret = &corev1.SecretVolumeSource{SecretName: name}
		} else {
			v.ConfigMap = &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}}
		}
		pod.Volumes = append(pod.Volumes, v)
	}
}

func pullSecret(name string) part {
	return func(pod *corev1.PodSpec) {
		pod.ImagePullSecrets = append(pod.ImagePullSecrets, corev1.LocalObjectReference{Name: name})
	}
}

// mountedClass mounts a volume of a SecretProviderClass.
func mountedClass(class string) part {
	return func(pod *corev1.PodSpec) {
		pod.Volumes = append(pod.Volumes, corev1.Volume{Name: "store", VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{
			Driver: "secrets-store.csi.k8s.io", VolumeAttributes: map[string]string{"secretProviderClass": class},
		}}})
		c := &pod.Containers[0]
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "store", MountPath: "/store"})
	}
}

func csi(nodePublishSecret, class string) part {
	return func(pod *corev1.PodSpec) {
		pod.Volumes = append(pod.Volumes, corev1.Volume{Name: "csi", VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{
			Driver:               "secrets-store.csi.k8s.io",
			VolumeAttributes:     map[string]string{"secretProviderClass": class},
			NodePublishSecretRef: &corev1.LocalObjectReference{Name: nodePublishSecret},
		}}})
	}
}

type annotations = map[string]string

// Annotations of Stakater Reloader, with their usual names.
const (
	configMapList   = "configmap.reloader.stakater.com/reload"
	secretList      = "secret.reloader.stakater.com/reload"
	configMapAuto   = "configmap.reloader.stakater.com/auto"
	secretAuto      = "secret.reloader.stakater.com/auto"
	rolloutStrategy = "reloader.stakater.com/rollout-strategy"
	reloaderAuto    = "reloader.stakater.com/auto"
	reloaderSearch  = "reloader.stakater.com/search"
	pausePeriod     = "deployment.reloader.stakater.com/pause-period"
)

// marked returns a workload with annotations that configdep writes.
func marked(annotations map[string]string) *dependency.Workload {
	return &dependency.Workload{Marks: record.MarksOf(annotations)}
}
