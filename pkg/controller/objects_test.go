// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/configdep/configdep/pkg/ingest/ingesttest"
)

func secret(name, value string) *corev1.Secret { return ingesttest.Secret(name, "password", value) }

func configMap(name, value string) *corev1.ConfigMap { return ingesttest.ConfigMap(name, "a", value) }

// template reads all of a Secret.
func template(source string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name:    "app",
		EnvFrom: []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: source}}}},
	}}}}
}

// sidecar adds a container that reads all of a ConfigMap.
func sidecar(d *appsv1.Deployment, source string) *appsv1.Deployment {
	d.Spec.Template.Spec.Containers = append(d.Spec.Template.Spec.Containers, corev1.Container{
		Name:    "sidecar",
		EnvFrom: []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: source}}}},
	})
	return d
}

// deployment returns a Deployment that has opted in and whose only pod is up to date.
func deployment(name, source string) *appsv1.Deployment {
	return ingesttest.Deployment(name, template(source).Spec)
}

func statefulSet(name, source string) *appsv1.StatefulSet {
	return ingesttest.StatefulSet(name, template(source).Spec)
}

func daemonSet(name, source string) *appsv1.DaemonSet {
	return ingesttest.DaemonSet(name, template(source).Spec)
}
