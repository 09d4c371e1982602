// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
)

const (
	isConfigMap = v1alpha1.SourceConfigMap
	isSecret    = v1alpha1.SourceSecret
)

// A workload may exist before its sources.
func TestSourceThatAppears(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	core := kube.CoreV1()
	create(t, kube.AppsV1().Deployments(namespace).Create, asleep("web", envSecretKey("db", "password"), envFromConfigMap("settings")))

	absent := view(t, namespace, "deployment.web",
		present(isSecret, "db", false), present(isConfigMap, "settings", false),
		resolved(metav1.ConditionFalse, v1alpha1.ReasonSourceMissing))

	write(t, namespace, "ConfigMap/settings", "color", "red")
	view(t, namespace, "deployment.web", present(isConfigMap, "settings", true), resolved(metav1.ConditionFalse, v1alpha1.ReasonSourceMissing))

	made := write(t, namespace, "Secret/db", "user", "shop")
	lacking := view(t, namespace, "deployment.web", at(made), present(isSecret, "db", true),
		resolved(metav1.ConditionFalse, v1alpha1.ReasonKeyMissing))
	if _, status, _ := source(lacking, isSecret, "db"); !cmp.Equal(status.MissingKeys, []string{"password"}) {
		t.Errorf("missing keys = %v", status.MissingKeys)
	}

	made = edit(t, core.Secrets(namespace), "db", func(s *corev1.Secret) { s.StringData = map[string]string{"password": "x"} })
	complete := view(t, namespace, "deployment.web", at(made), resolved(metav1.ConditionTrue, v1alpha1.ReasonAllPresent))
	if _, status, _ := source(complete, isSecret, "db"); status.MissingKeys != nil {
		t.Errorf("missing keys = %v", status.MissingKeys)
	}
	if absent.Status.ConfigHash == complete.Status.ConfigHash || lacking.Status.ConfigHash == complete.Status.ConfigHash {
		t.Error("the hash is the same with and without the sources")
	}

	remove(t, core.Secrets(namespace).Delete, "db")
	gone := view(t, namespace, "deployment.web", present(isSecret, "db", false), resolved(metav1.ConditionFalse, v1alpha1.ReasonSourceMissing))
	if gone.Status.ConfigHash != lacking.Status.ConfigHash {
		t.Error("an absent Secret and one without the key have different hashes, although pods see no difference")
	}
	again := write(t, namespace, "Secret/db", "password", "x", "user", "another")
	if back := view(t, namespace, "deployment.web", at(again)); back.Status.ConfigHash != complete.Status.ConfigHash {
		t.Error("a Secret that was deleted and created again with equal content has another hash")
	}
}

// A pod that has ended reads nothing any longer, and an adopted one belongs to its owner.
func TestPodsThatAreShownNoLonger(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	pods := kube.CoreV1().Pods(namespace)
	for _, name := range []string{"succeeds", "fails", "adopted", "deleted"} {
		create(t, pods.Create, pod(name))
	}
	for _, name := range []string{"succeeds", "fails", "adopted", "deleted"} {
		view(t, namespace, "pod."+name)
		runningPods(t, namespace, name, 1, nil)
	}
	for name, phase := range map[string]corev1.PodPhase{"succeeds": corev1.PodSucceeded, "fails": corev1.PodFailed} {
		patch := fmt.Sprintf(`{"status":{"phase":%q}}`, phase)
		if _, err := pods.Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
		viewGone(t, namespace, "pod."+name)
	}
	// A ReplicaSet adopts the pod that its selector matches.
	adopter := create(t, kube.AppsV1().ReplicaSets(namespace).Create, replicaSet("adopted"))
	viewGone(t, namespace, "pod.adopted")
	if adopted, err := pods.Get(t.Context(), "adopted", metav1.GetOptions{}); err != nil || !metav1.IsControlledBy(adopted, adopter) {
		t.Errorf("the pod does not exist, or was not adopted: %v", err)
	}
	remove(t, pods.Delete, "deleted")
	viewGone(t, namespace, "pod.deleted")
}
