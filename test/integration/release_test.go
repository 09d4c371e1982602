// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/test/install"
)

// The server waits for a client that writes content and the pod template, as releases do: its new content and its
// new template are one rollout. Changes by another client are restarted in the meantime.
func TestReleaseIsOneRollout(t *testing.T) {
	t.Parallel()
	s := newOwnShop(t)
	s.serve(install.ReplicaOptions{Args: []string{"--release-settle=1h"}})
	namespace := s.namespace
	deployments := kube.AppsV1().Deployments(namespace)
	by := metav1.ApplyOptions{FieldManager: "helm", Force: true}
	content := func(value string) {
		t.Helper()
		for _, name := range []string{"another", "db"} { // a single write is none of a release
			secret := corev1ac.Secret(name, namespace).WithStringData(map[string]string{"password": value})
			if _, err := kube.CoreV1().Secrets(namespace).Apply(t.Context(), secret, by); err != nil {
				t.Fatal(err)
			}
		}
	}
	workload := func(name, manager string) {
		t.Helper()
		o := single(name, envSecretKey("db", "password"))
		o.Annotations = auto
		if _, err := deployments.Create(t.Context(), o, metav1.CreateOptions{FieldManager: manager}); err != nil {
			t.Fatal(err)
		}
	}
	content("x")
	workload("web", "helm")
	workload("other", "kubectl-create")
	web, other := runningPods(t, namespace, "web", 1, nil), runningPods(t, namespace, "other", 1, nil)
	s.view("deployment.web", applied)
	s.view("deployment.other", applied)

	content("y")
	runningPods(t, namespace, "other", 1, other) // its settle time has passed
	s.view("deployment.web", is(v1alpha1.StateSettling, "SourceChanged"))
	image := []byte(`{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"app:2"}]}}}}`)
	if _, err := deployments.Patch(t.Context(), "web", types.StrategicMergePatchType, image, metav1.PatchOptions{FieldManager: "helm"}); err != nil {
		t.Fatal(err)
	}
	runningPods(t, namespace, "web", 1, web)
	after := s.view("deployment.web", applied)
	if after.Status.LastReload != nil {
		t.Errorf("web was restarted: %+v", after.Status.LastReload)
	}
	if n := s.templates(""); n != 4 {
		t.Errorf("got %d ReplicaSets", n)
	}
}
