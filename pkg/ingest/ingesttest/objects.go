// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingesttest

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/policy"
)

// ConfigMap returns a ConfigMap with keys and their values.
func ConfigMap(name string, pairs ...string) *corev1.ConfigMap {
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{}}
	for i := 0; i < len(pairs); i += 2 {
		m.Data[pairs[i]] = pairs[i+1]
	}
	return m
}

// Secret returns a Secret with keys and their values.
func Secret(name string, pairs ...string) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string][]byte{}}
	for i := 0; i < len(pairs); i += 2 {
		s.Data[pairs[i]] = []byte(pairs[i+1])
	}
	return s
}

// Deployment returns a Deployment that has opted in, and whose only pod is up to date.
func Deployment(name string, pod corev1.PodSpec) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: optedIn(name),
		Spec:       appsv1.DeploymentSpec{Selector: selector(name), Template: corev1.PodTemplateSpec{Spec: pod}},
		Status:     appsv1.DeploymentStatus{Replicas: 1, UpdatedReplicas: 1, AvailableReplicas: 1, ReadyReplicas: 1},
	}
}

// StatefulSet returns a StatefulSet that has opted in, and whose only pod is up to date.
func StatefulSet(name string, pod corev1.PodSpec) *appsv1.StatefulSet {
	return &appsv1.StatefulSet{
		ObjectMeta: optedIn(name),
		Spec:       appsv1.StatefulSetSpec{Selector: selector(name), Template: corev1.PodTemplateSpec{Spec: pod}},
		Status:     appsv1.StatefulSetStatus{Replicas: 1, ReadyReplicas: 1, UpdatedReplicas: 1},
	}
}

// DaemonSet returns a DaemonSet that has opted in, and whose only pod is up to date.
func DaemonSet(name string, pod corev1.PodSpec) *appsv1.DaemonSet {
	return &appsv1.DaemonSet{
		ObjectMeta: optedIn(name),
		Spec:       appsv1.DaemonSetSpec{Selector: selector(name), Template: corev1.PodTemplateSpec{Spec: pod}},
		Status:     appsv1.DaemonSetStatus{DesiredNumberScheduled: 1, UpdatedNumberScheduled: 1, NumberAvailable: 1},
	}
}

func optedIn(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Annotations: map[string]string{policy.ReloadAnnotation: string(policy.Auto)}}
}

func selector(name string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
}
