// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/test/await"
)

// reload creates a Reload, which must succeed.
func reload(t *testing.T, namespace, name string, spec v1alpha1.ReloadSpec) v1alpha1.ReloadStatus {
	t.Helper()
	return reloadAs(t, "admin", namespace, name, spec)
}

// reloadAs creates a Reload on behalf of a user with all permissions.
func reloadAs(t *testing.T, user, namespace, name string, spec v1alpha1.ReloadSpec) v1alpha1.ReloadStatus {
	t.Helper()
	got, err := as(t, user, "system:masters").ConfigDependencies(namespace).
		Reload(t.Context(), name, &v1alpha1.Reload{Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return got.Status
}

// rollout contains the fields of a workload with rollouts that the tests check.
type rollout struct {
	metav1.ObjectMeta
	template corev1.PodTemplateSpec
	observed int64
}

// getRollout reads a Deployment, StatefulSet or DaemonSet.
func getRollout(t *testing.T, namespace, kind, name string) rollout {
	t.Helper()
	var out rollout
	var err error
	switch apps := kube.AppsV1(); kind {
	case "Deployment":
		var o *appsv1.Deployment
		if o, err = apps.Deployments(namespace).Get(t.Context(), name, metav1.GetOptions{}); err == nil {
			out = rollout{o.ObjectMeta, o.Spec.Template, o.Status.ObservedGeneration}
		}
	case "StatefulSet":
		var o *appsv1.StatefulSet
		if o, err = apps.StatefulSets(namespace).Get(t.Context(), name, metav1.GetOptions{}); err == nil {
			out = rollout{o.ObjectMeta, o.Spec.Template, o.Status.ObservedGeneration}
		}
	case "DaemonSet":
		var o *appsv1.DaemonSet
		if o, err = apps.DaemonSets(namespace).Get(t.Context(), name, metav1.GetOptions{}); err == nil {
			out = rollout{o.ObjectMeta, o.Spec.Template, o.Status.ObservedGeneration}
		}
	default:
		t.Fatalf("a %s has no rollouts", kind)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// A reload is a real rollout, with a record of who requested it and why.
func TestReloadReplacesAllPods(t *testing.T) {
	t.Parallel()
	for kind, pods := range map[string]int{"Deployment": 2, "StatefulSet": 2, "DaemonSet": 3} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			namespace := newNamespace(t)
			name := strings.ToLower(kind) + ".web"
			made := write(t, namespace, "Secret/db", "password", "x")
			createWorkload(t, namespace, kind, nil, envFromSecret("db"))
			old := runningPods(t, namespace, "web", pods, nil)
			before := view(t, namespace, name, at(made))
			generation := getRollout(t, namespace, kind, "web").Generation

			started := time.Now().Truncate(time.Second)
			got := reloadAs(t, "jane", namespace, name, v1alpha1.ReloadSpec{Reason: "rotated by hand"})
			runningPods(t, namespace, "web", pods, old)

			want := v1alpha1.ReloadStatus{
				Triggered:   true,
				WorkloadRef: &before.Spec.WorkloadRef,
				Generation:  generation + 1,
				ConfigHash:  before.Status.ConfigHash,
				Message:     "The pods of " + kind + " web are being replaced.",
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
			live := getRollout(t, namespace, kind, "web")
			if live.Generation != got.Generation || live.observed < got.Generation {
				t.Errorf("generation = %d, observed %d, answer %d", live.Generation, live.observed, got.Generation)
			}
			if hash := live.template.Annotations["configdep.io/config-hash"]; hash != before.Status.ConfigHash {
				t.Errorf("hash on the template = %q, want %q", hash, before.Status.ConfigHash)
			}
			if record, has := live.Annotations["configdep.io/applied-sources"]; has { // it has not opted in
				t.Errorf("the record is %s", record)
			}
			if at, err := time.Parse(time.RFC3339Nano, live.template.Annotations["configdep.io/reloaded-at"]); err != nil || at.Before(started) {
				t.Errorf("the template was reloaded at %v (%v), want %v or later", at, err, started)
			}
			for _, entry := range live.ManagedFields {
				if entry.Manager == "configdep" && !strings.Contains(entry.FieldsV1.GetRawString(), "f:configdep.io/config-hash") {
					t.Errorf("the field manager configdep owns %s", entry.FieldsV1.GetRawString())
				}
			}

			after := view(t, namespace, name, func(o *v1alpha1.ConfigDependency) error {
				if o.Status.LastReload == nil {
					return errors.New("no lastReload")
				}
				return nil
			})
			last := after.Status.LastReload
			if last.Time.Time.Before(started) || last.RequestedBy != "jane" || last.Reason != "rotated by hand" || last.Trigger != "Request" {
				t.Errorf("lastReload = %+v", last)
			}
			if after.UID != before.UID {
				t.Errorf("uid = %s, was %s", after.UID, before.UID)
			}
			events := shopIn(t, namespace).told(kind, "web", "ConfigRestarted")
			if want := []string{"Restarted at the request of jane: rotated by hand"}; !cmp.Equal(want, events) {
				t.Errorf("events = %q, want %q", events, want)
			}
		})
	}
}

func TestReloadIfStale(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	secrets, deployments := kube.CoreV1().Secrets(namespace), kube.AppsV1().Deployments(namespace)
	made := write(t, namespace, "Secret/db", "password", "x")
	create(t, deployments.Create, deployment("web", envFromSecret("db")))
	pods := runningPods(t, namespace, "web", 2, nil)
	ifStale := func(triggered bool, message string) v1alpha1.ReloadStatus {
		t.Helper()
		shown := view(t, namespace, "deployment.web", at(made))
		before := getRollout(t, namespace, "Deployment", "web")
		got := reload(t, namespace, "deployment.web", v1alpha1.ReloadSpec{Mode: v1alpha1.ReloadIfStale})
		generation := before.Generation
		if triggered {
			generation++
		}
		if got.Triggered != triggered || got.Generation != generation || !strings.Contains(got.Message, message) || got.ConfigHash != shown.Status.ConfigHash {
			t.Errorf("answer = %+v, want %q with generation %d", got, message, generation)
		}
		if live := getRollout(t, namespace, "Deployment", "web"); live.Generation != generation {
			t.Errorf("generation = %d, want %d", live.Generation, generation)
		}
		return got
	}

	// The answer distinguishes a complete rollout from one in progress.
	rolledOut := func() {
		t.Helper()
		await.Until(t, "the rollout is complete", func(ctx context.Context) error {
			o, err := deployments.Get(ctx, "web", metav1.GetOptions{})
			if err == nil && (o.Status.ObservedGeneration < o.Generation || o.Status.UpdatedReplicas < 2 || o.Status.Replicas > 2) {
				err = fmt.Errorf("%+v", o.Status)
			}
			return err
		})
	}

	const current = "the pods run with the current content"
	rolledOut()
	ifStale(false, current)

	made = edit(t, secrets, "db", func(s *corev1.Secret) { s.Labels = map[string]string{"a": "b"} })
	ifStale(false, current)

	awaitAge(t, namespace, "web")
	made = edit(t, secrets, "db", func(s *corev1.Secret) { s.Data["password"] = []byte("y") })
	if err := await.NextSecond(t.Context()); err != nil { // pods that are created in the second of the change may have read either
		t.Fatal(err)
	}
	ifStale(true, "are being replaced")
	pods = runningPods(t, namespace, "web", 2, pods)
	rolledOut()
	ifStale(false, current)

	// Going back to the content before the last restart is a change too.
	awaitAge(t, namespace, "web")
	made = edit(t, secrets, "db", func(s *corev1.Secret) { s.Data["password"] = []byte("x") })
	ifStale(true, "are being replaced")
	runningPods(t, namespace, "web", 2, pods)
}

// Many users may reload the same workload at once.
func TestReloadConcurrently(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	create(t, kube.AppsV1().Deployments(namespace).Create, deployment("web"))
	pods := runningPods(t, namespace, "web", 2, nil)
	view(t, namespace, "deployment.web")

	const requests = 20
	before := getRollout(t, namespace, "Deployment", "web").Generation
	answers := make(chan error, requests)
	generations := make(chan int64, requests)
	var all sync.WaitGroup
	for i := range requests {
		client := as(t, fmt.Sprintf("user-%d", i), "system:masters").ConfigDependencies(namespace)
		all.Go(func() {
			got, err := client.Reload(t.Context(), "deployment.web", &v1alpha1.Reload{}, metav1.CreateOptions{})
			if err == nil && !got.Status.Triggered {
				err = errors.New(got.Status.Message)
			}
			answers <- err
			generations <- got.Status.Generation
		})
	}
	all.Wait()
	close(answers)
	close(generations)
	for err := range answers {
		if err != nil {
			t.Error(err)
		}
	}
	seen := map[int64]bool{}
	for g := range generations {
		if seen[g] || g <= before || g > before+requests {
			t.Errorf("generation %d is outside %d to %d, or was returned twice", g, before+1, before+requests)
		}
		seen[g] = true
	}
	runningPods(t, namespace, "web", 2, pods)
}
