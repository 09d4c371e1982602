// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/test/await"
)

// Pods whose files have changed are annotated, so that their kubelets refresh them. Nothing restarts.
func TestNudge(t *testing.T) {
	t.Parallel()
	s := newInPlaceShop(newShop(t), func(d *appsv1.Deployment) {
		pod := &d.Spec.Template.Spec
		pod.Containers[0].EnvFrom = nil
		pod.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "files", MountPath: "/files"}}
		pod.Volumes = append(pod.Volumes, corev1.Volume{Name: "files", VolumeSource: corev1.VolumeSource{
			ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "app-config"}},
		}})
		d.Annotations[policy.LiveVolumesAnnotation], d.Annotations[policy.NudgeAnnotation] = "true", "true"
	})
	pods := s.uids()
	var first string
	await.Until(t, "the first content is recorded", func(ctx context.Context) error {
		d, err := kube.AppsV1().Deployments(s.namespace).Get(ctx, "web", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if first = d.Annotations[policy.NudgedAnnotation]; first == "" {
			return errors.New("it is not")
		}
		return nil
	})
	s.write(config, "key", "2")
	await.Until(t, "all pods are annotated", func(ctx context.Context) error {
		list, err := kube.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=web"})
		if err != nil {
			return err
		}
		for i := range list.Items {
			if list.Items[i].Annotations[policy.NudgedAnnotation] == "" {
				return fmt.Errorf("pod %s is not", list.Items[i].Name)
			}
		}
		d, err := kube.AppsV1().Deployments(s.namespace).Get(ctx, "web", metav1.GetOptions{})
		if err == nil && d.Annotations[policy.NudgedAnnotation] == first {
			err = errors.New("this is not recorded")
		}
		return err
	})
	s.check(pods, 0)
	if now := s.uids(); !maps.Equal(now, pods) || s.templates("web") != 1 {
		t.Errorf("pods = %v, with %d ReplicaSets, want %v with one", now, s.templates("web"), pods)
	}
}
