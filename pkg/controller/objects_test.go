// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/policy"
)

func secret(name, value string) *corev1.Secret {
	s := &corev1.Secret{Data: map[string][]byte{"password": []byte(value)}}
	s.Name = name
	return s
}

func configMap(name, value string) *corev1.ConfigMap {
	m := &corev1.ConfigMap{Data: map[string]string{"a": value}}
	m.Name = name
	return m
}

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

// deployment is one that has opted in and whose only pod is up to date.
func deployment(name, source string) *appsv1.Deployment {
	d := &appsv1.Deployment{}
	d.Name = name
	d.Annotations = map[string]string{policy.ReloadAnnotation: "auto"}
	d.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
	d.Spec.Template = template(source)
	d.Status = appsv1.DeploymentStatus{Replicas: 1, UpdatedReplicas: 1, AvailableReplicas: 1}
	return d
}

func statefulSet(name, source string) *appsv1.StatefulSet {
	s := &appsv1.StatefulSet{}
	s.Name = name
	s.Annotations = map[string]string{policy.ReloadAnnotation: "auto"}
	s.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
	s.Spec.Template = template(source)
	s.Status = appsv1.StatefulSetStatus{Replicas: 1, ReadyReplicas: 1, UpdatedReplicas: 1}
	return s
}

func daemonSet(name, source string) *appsv1.DaemonSet {
	s := &appsv1.DaemonSet{}
	s.Name = name
	s.Annotations = map[string]string{policy.ReloadAnnotation: "auto"}
	s.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
	s.Spec.Template = template(source)
	s.Status = appsv1.DaemonSetStatus{DesiredNumberScheduled: 1, UpdatedNumberScheduled: 1, NumberAvailable: 1}
	return s
}
