// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

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

// Two requests in one second are two rollouts.
func TestReloadTwice(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	create(t, kube.AppsV1().Deployments(namespace).Create, deployment("web"))
	pods := runningPods(t, namespace, "web", 2, nil)
	view(t, namespace, "deployment.web")
	first := reload(t, namespace, "deployment.web", v1alpha1.ReloadSpec{})
	second := reload(t, namespace, "deployment.web", v1alpha1.ReloadSpec{})
	if second.Generation != first.Generation+1 || !second.Triggered {
		t.Errorf("generations = %d and %d, want them to differ", first.Generation, second.Generation)
	}
	runningPods(t, namespace, "web", 2, pods)
}

func TestReloadDryRunChangesNothing(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"Deployment", "StatefulSet", "DaemonSet"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			namespace := newNamespace(t)
			apps := kube.AppsV1()
			switch kind { // without pods, so that no controller writes a status
			case "Deployment":
				create(t, apps.Deployments(namespace).Create, asleep("web"))
			case "StatefulSet":
				o := statefulSet("web")
				o.Spec.Replicas = new(int32(0))
				create(t, apps.StatefulSets(namespace).Create, o)
			case "DaemonSet":
				o := daemonSet("web")
				o.Spec.Template.Spec.NodeSelector = map[string]string{"no": "node"}
				create(t, apps.DaemonSets(namespace).Create, o)
			}
			name := strings.ToLower(kind) + ".web"
			view(t, namespace, name)
			await.Until(t, "the controller has observed the workload", func(context.Context) error {
				if o := getRollout(t, namespace, kind, "web"); o.observed != o.Generation {
					return fmt.Errorf("observed generation = %d of %d", o.observed, o.Generation)
				}
				return nil
			})
			before := getRollout(t, namespace, kind, "web")

			got, err := as(t, "jane", "system:masters").ConfigDependencies(namespace).Reload(t.Context(), name,
				&v1alpha1.Reload{Spec: v1alpha1.ReloadSpec{Reason: "dry"}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if err != nil {
				t.Fatal(err)
			}
			want := "Dry run: the rollout of " + kind + " web would begin; but it has no replicas now."
			if kind == "DaemonSet" { // has no field replicas
				want = "Dry run: the pods of DaemonSet web would be replaced."
			}
			if !got.Status.Triggered || got.Status.Generation != before.Generation+1 || got.Status.Message != want {
				t.Errorf("answer = %+v", got.Status)
			}
			if diff := cmp.Diff(before.ObjectMeta, getRollout(t, namespace, kind, "web").ObjectMeta); diff != "" {
				t.Errorf("(-before +after):\n%s", diff)
			}
			// Events are written in order: the first one must be from the second request.
			reload(t, namespace, name, v1alpha1.ReloadSpec{Reason: "wet"})
			if events := shopIn(t, namespace).told(kind, "web", "ConfigRestarted"); len(events) != 1 || !strings.HasSuffix(events[0], ": wet") {
				t.Errorf("events = %q", events)
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

func TestReloadPreconditions(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	made := write(t, namespace, "Secret/db", "password", "x")
	create(t, kube.AppsV1().Deployments(namespace).Create, asleep("web", envFromSecret("db")))
	shown := view(t, namespace, "deployment.web", at(made))
	wrong := types.UID("00000000-0000-0000-0000-000000000000")

	for name, tt := range map[string]struct {
		metadata types.UID
		uid      *types.UID
		hash     *string
		want     []string // texts in the message of a conflict
	}{
		"none":                                    {},
		"the ConfigDependency's":                  {uid: &shown.UID},
		"the UID of the workload":                 {uid: &shown.Spec.WorkloadRef.UID},
		"another UID":                             {uid: &wrong, want: []string{"UID in precondition", string(wrong), string(shown.UID), string(shown.Spec.WorkloadRef.UID)}},
		"an empty UID":                            {uid: new(types.UID("")), want: []string{"UID in precondition"}},
		"the ConfigDependency's, above":           {metadata: shown.UID},
		"the UID of the workload in the metadata": {metadata: shown.Spec.WorkloadRef.UID},
		"another UID in the metadata":             {metadata: wrong, want: []string{"UID in precondition", string(wrong)}},
		"one right UID, one wrong":                {metadata: shown.UID, uid: &wrong, want: []string{"UID in precondition", string(wrong)}},
		"the current hash":                        {hash: &shown.Status.ConfigHash},
		"another hash":                            {hash: new("v1.abc.def"), want: []string{"v1.abc.def", shown.Status.ConfigHash}},
		"all preconditions":                       {metadata: shown.UID, uid: &shown.Spec.WorkloadRef.UID, hash: &shown.Status.ConfigHash},
	} {
		t.Run(name, func(t *testing.T) {
			request := &v1alpha1.Reload{Spec: v1alpha1.ReloadSpec{Preconditions: &v1alpha1.ReloadPreconditions{UID: tt.uid, ConfigHash: tt.hash}}}
			request.UID = tt.metadata
			before := getRollout(t, namespace, "Deployment", "web").Generation
			got, err := configdep.ConfigDependencies(namespace).Reload(t.Context(), "deployment.web", request, metav1.CreateOptions{})
			after := getRollout(t, namespace, "Deployment", "web").Generation
			if tt.want == nil {
				if err != nil || !got.Status.Triggered || after != before+1 {
					t.Errorf("error or not triggered: %v, %v", got, err)
				}
				return
			}
			checkError(t, err, http.StatusConflict, metav1.StatusReasonConflict, tt.want...)
			if after != before {
				t.Error("the workload was changed although a precondition failed")
			}
		})
	}
}

// A Reload of a workload that cannot be restarted is rejected with the reason.
func TestReloadRefused(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	core, apps, batch := kube.CoreV1(), kube.AppsV1(), kube.BatchV1()
	paused := asleep("paused")
	paused.Spec.Paused = true
	create(t, apps.Deployments(namespace).Create, paused)
	create(t, apps.ReplicaSets(namespace).Create, replicaSet("legacy"))
	create(t, batch.CronJobs(namespace).Create, cronJob("report"))
	create(t, batch.Jobs(namespace).Create, job("seed"))
	create(t, core.Pods(namespace).Create, pod("toolbox"))

	for name, want := range map[string]refusal{
		"deployment.paused":  {http.StatusConflict, metav1.StatusReasonConflict, "Deployment paused is paused, so no rollout would begin: resume it first"},
		"replicaset.legacy":  invalid(`metadata.name: Invalid value: "replicaset.legacy": a ReplicaSet cannot be restarted: only a DaemonSet, Deployment or StatefulSet can`),
		"cronjob.report":     invalid(`metadata.name: Invalid value: "cronjob.report": a CronJob cannot be restarted: only a DaemonSet, Deployment or StatefulSet can`),
		"job.seed":           invalid(`metadata.name: Invalid value: "job.seed": a Job cannot be restarted: only a DaemonSet, Deployment or StatefulSet can`),
		"pod.toolbox":        invalid(`metadata.name: Invalid value: "pod.toolbox": a Pod cannot be restarted: only a DaemonSet, Deployment or StatefulSet can`),
		"deployment.unknown": {http.StatusNotFound, metav1.StatusReasonNotFound, `configdependencies.configdep.io "deployment.unknown" not found`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if want.code != http.StatusNotFound {
				view(t, namespace, name)
			}
			for _, options := range []metav1.CreateOptions{{}, {DryRun: []string{metav1.DryRunAll}}} {
				_, err := configdep.ConfigDependencies(namespace).Reload(t.Context(), name, &v1alpha1.Reload{}, options)
				checkError(t, err, want.code, want.reason, want.message)
			}
		})
	}
}

// The message does not claim that pods are being replaced if the rollout waits for a user.
func TestReloadSaysWhenPodsAreNotReplacedAtOnce(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	apps := kube.AppsV1()
	create(t, apps.Deployments(namespace).Create, asleep("asleep"))
	partitioned := statefulSet("partitioned")
	partitioned.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{Partition: new(int32(1))}}
	create(t, apps.StatefulSets(namespace).Create, partitioned)
	byHand := statefulSet("by-hand")
	byHand.Spec.UpdateStrategy.Type = appsv1.OnDeleteStatefulSetStrategyType
	create(t, apps.StatefulSets(namespace).Create, byHand)
	agent := daemonSet("by-hand")
	agent.Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType
	create(t, apps.DaemonSets(namespace).Create, agent)
	for name, want := range map[string]string{
		"deployment.asleep":       "it has no replicas now",
		"statefulset.partitioned": "its partition is 1: pods with a lower ordinal are not replaced",
		"statefulset.by-hand":     "its update strategy is OnDelete",
		"daemonset.by-hand":       "its update strategy is OnDelete",
	} {
		view(t, namespace, name)
		if got := reload(t, namespace, name, v1alpha1.ReloadSpec{}); !got.Triggered || !strings.Contains(got.Message, want) {
			t.Errorf("%s: message = %q, want it to contain %q", name, got.Message, want)
		}
	}
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

// The documented command, in the formats that kubectl accepts.
func TestReloadWithKubectl(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	create(t, kube.AppsV1().Deployments(namespace).Create, asleep("web"))
	view(t, namespace, "deployment.web")
	for name, body := range map[string]string{
		"empty.json":    `{}`,
		"reason.json":   `{"spec":{"reason":"rotated by hand"}}`,
		"reload.yaml":   "# by hand\napiVersion: configdep.io/v1alpha1\nkind: Reload\nspec:\n  reason: rotated by hand\n  mode: Always\n",
		"complete.json": `{"apiVersion":"configdep.io/v1alpha1","kind":"Reload","metadata":{"name":"deployment.web"},"spec":{"mode":"Always"}}`,
	} {
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
		var got v1alpha1.Reload
		out := kubectl(t, "create", "--raw", resourcePath(namespace)+"/deployment.web/reload", "-f", file)
		if err := json.Unmarshal([]byte(out), &got); err != nil {
			t.Fatal(err)
		}
		if !got.Status.Triggered || got.Kind != "Reload" || got.Name != "deployment.web" || got.Namespace != namespace || got.Spec.Mode != v1alpha1.ReloadAlways {
			t.Errorf("%s: answer = %s", name, out)
		}
	}
	file := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(file, []byte("spec:\n  mode: Now\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := kubectlFails(t, "create", "--raw", resourcePath(namespace)+"/deployment.web/reload", "-f", file); !strings.Contains(got, "spec.mode: Unsupported value") {
		t.Errorf("error = %s", got)
	}
}
