// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/configdep/configdep/pkg/ingest/ingesttest"
)

func secret(name, value string) *corev1.Secret { return ingesttest.Secret(name, "password", value) }

// template reads all of a Secret.
func template(source string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name:    "app",
		EnvFrom: []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: source}}}},
	}}}}
}

// deployment returns a Deployment that has opted in and whose only pod is up to date.
func deployment(name, source string) *appsv1.Deployment {
	return ingesttest.Deployment(name, template(source).Spec)
}

func statefulSet(name, source string) *appsv1.StatefulSet {
	return ingesttest.StatefulSet(name, template(source).Spec)
}
