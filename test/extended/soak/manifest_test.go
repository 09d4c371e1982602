// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"encoding/json"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/test/controlplane"
)

// Annotations by which the journal recognizes writes.
const (
	// variantAnnotation, on pod templates, names the variant.
	variantAnnotation = "soak.test/variant"
	// writeAnnotation, on workloads, changes with each write of the owner, so that the owner's writes can be
	// distinguished from others.
	writeAnnotation = "soak.test/write"
	// calmLabel, on workloads, is a write that views show.
	calmLabel = "soak.test/calm"
)

const replicas = 2

// matchAnnotation, on sources, is for workloads in mode matched.
const matchAnnotation = "configdep.io/match"

// manifest is the owner's manifest of a workload.
type manifest struct {
	kind, name string
	variant    int
	image      int
	replicas   int32 // of a Deployment or a StatefulSet
	paused     bool  // of a Deployment
	stuck      bool  // new pods do not become ready
	label      string
	write      int

	// Annotations; empty: absent. The ones in the last line are constant.
	reload, settle                               string
	mode, minInterval, strategy, listed, exclude string // mode: the mode when the workload opts in
}

// renameReplicaSet gives a Deployment that is created again another image. With the same template, its ReplicaSet
// would have the name of the one that is being deleted, and the ReplicaSet controller, which tracks expected pods
// by name, may wait five minutes for the pods of the old one.
func (m *manifest) renameReplicaSet(image int) {
	if m.kind == "Deployment" {
		m.image = image
	}
}

// annotations returns the annotations with which the owner configures restarts of the workload.
func (m *manifest) annotations() map[string]string {
	return map[string]string{
		reloadAnnotation: m.reload, "configdep.io/settle": m.settle, "configdep.io/min-interval": m.minInterval,
		"configdep.io/strategy": m.strategy, "configdep.io/sources": m.listed, "configdep.io/exclude": m.exclude,
	}
}

func (m *manifest) object() any {
	meta := metav1.ObjectMeta{
		Name:        m.name,
		Labels:      map[string]string{"app": m.name, calmLabel: m.label},
		Annotations: map[string]string{writeAnnotation: strconv.Itoa(m.write)},
	}
	for key, value := range m.annotations() {
		if value != "" {
			meta.Annotations[key] = value
		}
	}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": m.name}}
	typ := metav1.TypeMeta{APIVersion: "apps/v1", Kind: m.kind}
	switch m.kind {
	case "Deployment":
		return &appsv1.Deployment{TypeMeta: typ, ObjectMeta: meta,
			Spec: appsv1.DeploymentSpec{Replicas: &m.replicas, Selector: selector, Template: m.template(), Paused: m.paused}}
	case "StatefulSet":
		return &appsv1.StatefulSet{TypeMeta: typ, ObjectMeta: meta,
			Spec: appsv1.StatefulSetSpec{Replicas: &m.replicas, Selector: selector, Template: m.template(),
				PodManagementPolicy: appsv1.ParallelPodManagement}}
	default:
		return &appsv1.DaemonSet{TypeMeta: typ, ObjectMeta: meta,
			Spec: appsv1.DaemonSetSpec{Selector: selector, Template: m.template()}}
	}
}

// patch returns a JSON merge patch that sets the fields of the owner, and leaves additions of other clients alone.
func (m *manifest) patch() ([]byte, error) {
	type object = map[string]any
	orNull := func(s string) any {
		if s == "" {
			return nil
		}
		return s
	}
	annotations := object{writeAnnotation: strconv.Itoa(m.write)}
	for key, value := range m.annotations() {
		annotations[key] = orNull(value)
	}
	template := m.template()
	spec := object{"template": object{
		"metadata": object{"annotations": object{
			variantAnnotation: template.Annotations[variantAnnotation], controlplane.StuckAnnotation: orNull(template.Annotations[controlplane.StuckAnnotation]),
		}},
		"spec": object{"containers": template.Spec.Containers, "volumes": template.Spec.Volumes},
	}}
	if m.kind != "DaemonSet" {
		spec["replicas"] = m.replicas
	}
	if m.kind == "Deployment" {
		spec["paused"] = m.paused
	}
	return json.Marshal(object{
		"metadata": object{"labels": object{calmLabel: m.label}, "annotations": annotations},
		"spec":     spec,
	})
}

func (m *manifest) template() corev1.PodTemplateSpec {
	container := corev1.Container{Name: "app", Image: "app:" + strconv.Itoa(m.image)}
	var volumes []corev1.Volume
	for i, u := range variants[m.variant] {
		switch u.how {
		case "env":
			for _, key := range u.keys {
				container.Env = append(container.Env, corev1.EnvVar{Name: "E" + strconv.Itoa(i) + key, ValueFrom: u.env(key)})
			}
		case "envFrom":
			container.EnvFrom = append(container.EnvFrom, u.envFrom())
		default:
			name := "v" + strconv.Itoa(i)
			volumes = append(volumes, corev1.Volume{Name: name, VolumeSource: u.volume()})
			container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: "/" + name})
		}
	}
	annotations := map[string]string{variantAnnotation: strconv.Itoa(m.variant)}
	if m.stuck {
		annotations[controlplane.StuckAnnotation] = "true"
	}
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{
			Labels:      map[string]string{"app": m.name},
			Annotations: annotations,
		},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{container},
			Volumes:    volumes,
			// A deleted pod is removed as soon as kwok has seen it.
			TerminationGracePeriodSeconds: new(int64(1)),
			AutomountServiceAccountToken:  new(false),
		},
	}
}

func (u *use) env(key string) *corev1.EnvVarSource {
	ref := corev1.LocalObjectReference{Name: u.source}
	if kindOf(u.source) == "Secret" {
		return &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: ref, Key: key, Optional: &u.optional}}
	}
	return &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: ref, Key: key, Optional: &u.optional}}
}

func (u *use) envFrom() corev1.EnvFromSource {
	ref := corev1.LocalObjectReference{Name: u.source}
	if kindOf(u.source) == "Secret" {
		return corev1.EnvFromSource{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: ref, Optional: &u.optional}}
	}
	return corev1.EnvFromSource{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: ref, Optional: &u.optional}}
}

func (u *use) volume() corev1.VolumeSource {
	ref := corev1.LocalObjectReference{Name: u.source}
	var items []corev1.KeyToPath
	for _, key := range u.keys {
		items = append(items, corev1.KeyToPath{Key: key, Path: key})
	}
	secret := kindOf(u.source) == "Secret"
	switch {
	case u.how == "projected" && secret:
		return projected(corev1.VolumeProjection{Secret: &corev1.SecretProjection{LocalObjectReference: ref, Items: items, Optional: &u.optional}})
	case u.how == "projected":
		return projected(corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: ref, Items: items, Optional: &u.optional}})
	case secret:
		return corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: u.source, Items: items, Optional: &u.optional}}
	default:
		return corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: ref, Items: items, Optional: &u.optional}}
	}
}

func projected(p corev1.VolumeProjection) corev1.VolumeSource {
	return corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{p}}}
}
