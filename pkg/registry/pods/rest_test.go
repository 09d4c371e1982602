// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/ingest"
	"github.com/configdep/configdep/pkg/ingest/ingesttest"
)

// statefulSet returns StatefulSet web, which reads Secret db.
func statefulSet(revision string) *appsv1.StatefulSet {
	o := ingesttest.StatefulSet("web", readsDB())
	o.UID, o.Status.UpdateRevision = "web-uid", revision
	return o
}

// runWeb creates a pod of StatefulSet web.
func (w *world) runWeb(name, revision string) *corev1.Pod {
	set := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "web", UID: "web-uid"}
	return w.run(name, set, map[string]string{appsv1.ControllerRevisionHashLabelKey: revision}, readsDB())
}

func TestGet_ShowsWhichPodsAreStale(t *testing.T) {
	w := newWorld(t, statefulSet("web-1"))
	w.pass(time.Minute)
	stale := w.runWeb("web-0", "web-1").DeepCopy()
	stale.Status.ContainerStatuses[0].RestartCount = 2
	w.Set(stale)
	ending := w.runWeb("web-2", "web-1").DeepCopy()
	ending.DeletionTimestamp = new(metav1.NewTime(w.clock.Now()))
	w.Set(ending)
	w.pass(9 * time.Minute)
	changed := w.clock.Now()
	w.Set(ingesttest.Secret("db", "password", "y"))
	w.runWeb("web-4", "web-1")
	w.Set(statefulSet("web-2"))
	w.pass(time.Minute)
	w.runWeb("web-1", "web-2")
	waiting := w.runWeb("web-3", "web-2").DeepCopy()
	waiting.Status = corev1.PodStatus{Phase: corev1.PodPending}
	w.Set(waiting)

	got := w.get(t, "statefulset.web")
	if want := (v1alpha1.PodSummary{Current: 1, Stale: 1, Unknown: 1, NotStarted: 1, Terminating: 1}); got.Summary != want {
		t.Errorf("summary = %+v, want %+v", got.Summary, want)
	}
	view, err := w.Lookup(ingesttest.Namespace, "statefulset.web")
	if err != nil {
		t.Fatal(err)
	}
	started := metav1.NewTime(begin.Add(time.Minute))
	const message = "Secret db has changed since the container started."
	want := &v1alpha1.ConfigDependencyPods{
		ObjectMeta:       metav1.ObjectMeta{Namespace: ingesttest.Namespace, Name: "statefulset.web", UID: view.UID},
		WorkloadRef:      view.Spec.WorkloadRef,
		Time:             metav1.NewTime(w.clock.Now()),
		ConfigHash:       view.Status.ConfigHash,
		TemplateRevision: "web-2",
		Summary:          got.Summary,
		Pods: []v1alpha1.PodContent{{
			Name: "web-0", UID: "web-0-uid", NodeName: "node-1", Phase: "Running", CreationTimestamp: started, TemplateRevision: "web-1",
			State: "Stale", Reason: "StartedBefore", Message: message, StaleSources: []string{"Secret/db"},
			Containers: []v1alpha1.ContainerContent{
				{
					Name: "app", Type: "Regular", StartedAt: &started, RestartCount: 2, State: "Stale", Reason: "StartedBefore", Message: message,
					Sources: []v1alpha1.ContainerSource{{
						Kind: "Secret", Name: "db", State: "Stale", Reason: "StartedBefore", Message: message, LastChangeTime: new(metav1.NewTime(changed)),
					}},
				},
				{
					Name: "side", Type: "Regular", StartedAt: &started, State: "Current", Reason: "NothingRead",
					Message: "It reads no ConfigMap or Secret whose content counts.",
				},
			},
		}},
	}
	first := *got
	first.Pods = got.Pods[:1]
	if diff := cmp.Diff(want, &first); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := json.Marshal(got); err != nil {
		t.Error(err)
	}
	t.Run("as a table", func(t *testing.T) {
		table, err := w.ConvertToTable(t.Context(), got, nil)
		if err != nil {
			t.Fatal(err)
		}
		var rows []string
		for _, r := range table.Rows {
			rows = append(rows, fmt.Sprint(r.Cells[0], " ", r.Cells[1], " ", r.Cells[3], " ", r.Cells[6], " ", r.Cells[7]))
			o := r.Object.Object.(*v1alpha1.ConfigDependencyPods)
			if o.Name != r.Cells[0] || len(o.Pods) != 1 || o.Pods[0].Name != o.Name || len(r.Cells) != len(table.ColumnDefinitions) {
				t.Errorf("row %v has %d pods of %s", r.Cells, len(o.Pods), o.Name)
			}
		}
		if diff := cmp.Diff([]string{
			"web-0 Stale web-1 (old) Secret/db app=Stale(StartedBefore), side=Current(NothingRead)",
			"web-1 Current web-2 <none> app=Current(StartedAfter), side=Current(NothingRead)",
			"web-2 Terminating web-1 (old) Secret/db app=Stale(StartedBefore), side=Current(NothingRead)",
			"web-3 NotStarted web-2 <none> app=NotStarted(NotStarted), side=NotStarted(NotStarted)",
			"web-4 Unknown web-1 (old) <none> app=Unknown(ClockMargin), side=Current(NothingRead)",
		}, rows); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

func TestGet_EveryKind(t *testing.T) {
	template := corev1.PodTemplateSpec{Spec: readsDB()}
	deployment, daemonSet := ingesttest.Deployment("web", readsDB()), ingesttest.DaemonSet("logs", readsDB())
	deployment.Annotations["deployment.kubernetes.io/revision"] = "2"
	daemonSet.Annotations[appsv1.DeprecatedTemplateGeneration] = "3"
	cronJob := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Name: "report"}, Spec: batchv1.CronJobSpec{JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: template}}}}
	idle := cronJob.DeepCopy()
	idle.Name = "idle"
	w := newWorld(t, deployment, daemonSet, cronJob, idle, ingesttest.Deployment("asleep", readsDB()))
	byDeployment, byDaemonSet := owner("apps/v1", "Deployment", deployment), owner("apps/v1", "DaemonSet", daemonSet)
	for number, hash := range map[string]string{"1": "aaa", "2": "bbb"} {
		byDeployment.Controller = new(true)
		set := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Name: "web-" + hash, OwnerReferences: []metav1.OwnerReference{byDeployment},
			Labels: map[string]string{appsv1.DefaultDeploymentUniqueLabelKey: hash}, Annotations: map[string]string{"deployment.kubernetes.io/revision": number},
		}}
		set.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))
		w.Set(set)
		w.run("web-"+hash+"-1", owner("apps/v1", "ReplicaSet", set), set.Labels, readsDB())
	}
	w.run("logs-1", byDaemonSet, map[string]string{"pod-template-generation": "3"}, readsDB())
	byCronJob := owner("batch/v1", "CronJob", cronJob)
	byCronJob.Controller = new(true)
	for _, name := range []string{"report-1", "report-2"} {
		job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{byCronJob}}, Spec: batchv1.JobSpec{Template: template}}
		w.Set(job)
		w.run(name+"-x", owner("batch/v1", "Job", job), nil, readsDB())
	}
	w.run("toolbox", metav1.OwnerReference{}, nil, readsDB())
	const next = "The next run reads the content that is present then."
	for name, want := range map[string]struct {
		revision, message string
		pods              []string // their names and revisions
	}{
		"deployment.web":    {"bbb", "", []string{"web-aaa-1 aaa", "web-bbb-1 bbb"}},
		"daemonset.logs":    {"3", "", []string{"logs-1 3"}},
		"cronjob.report":    {"", next, []string{"report-1-x ", "report-2-x "}},
		"cronjob.idle":      {"", "No run is active. " + next, nil},
		"pod.toolbox":       {"", "", []string{"toolbox "}},
		"deployment.asleep": {"", "No pod runs.", nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := w.get(t, name)
			var pods []string
			for i := range got.Pods {
				pods = append(pods, got.Pods[i].Name+" "+got.Pods[i].TemplateRevision)
			}
			if diff := cmp.Diff(want.pods, pods); diff != "" || got.TemplateRevision != want.revision || got.Message != want.message {
				t.Errorf("revision %q, message %q, pods (-want +got):\n%s", got.TemplateRevision, got.Message, diff)
			}
		})
	}
}

// Containers of all types, and one that reads a source both as environment and as files, of which the worse counts. No annotation says how the
// application treats its files.
func TestGet_ContainersOfEveryType(t *testing.T) {
	spec := readsDB()
	spec.Volumes = []corev1.Volume{{Name: "db", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "db"}}}}
	mounts := []corev1.VolumeMount{{Name: "db", MountPath: "/db"}}
	spec.InitContainers = []corev1.Container{
		{Name: "init", EnvFrom: spec.Containers[0].EnvFrom},
		{Name: "sidecar", RestartPolicy: new(corev1.ContainerRestartPolicyAlways), VolumeMounts: mounts},
	}
	spec.Containers[0].VolumeMounts = mounts
	o := ingesttest.Deployment("web", spec)
	o.Annotations = nil
	w := newWorld(t, o)
	w.pass(time.Hour)
	p := w.run("web-aaa-1", metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-aaa"}, map[string]string{"pod-template-hash": "aaa"}, spec).DeepCopy()
	p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug"}}}
	done := &p.Status.InitContainerStatuses[0].State
	done.Running, done.Terminated = nil, &corev1.ContainerStateTerminated{StartedAt: done.Running.StartedAt}
	w.Set(p)
	w.pass(time.Hour)
	w.Set(ingesttest.Secret("db", "password", "y"))
	w.pass(time.Minute)
	pod := &w.get(t, "deployment.web").Pods[0]
	const want = "init Stale StartedBefore, sidecar Unknown FilesChanged, app Stale StartedBefore, side Current NothingRead"
	if got := states(pod); got != want {
		t.Errorf("containers = %s, want %s", got, want)
	}
	var roles []v1alpha1.ContainerType
	for i := range pod.Containers {
		roles = append(roles, pod.Containers[i].Type)
	}
	if diff := cmp.Diff([]v1alpha1.ContainerType{"Init", "Sidecar", "Regular", "Regular"}, roles); diff != "" {
		t.Errorf("types (-want +got):\n%s", diff)
	}
	if app := &pod.Containers[2]; len(app.Sources) != 1 || app.Sources[0].Reason != "StartedBefore" {
		t.Errorf("sources of app = %+v", app.Sources)
	}
}

func TestGet_Refuses(t *testing.T) {
	for name, tt := range map[string]struct {
		do   func(*world)
		name string
		want func(error) bool
	}{
		"a name without a workload":           {func(*world) {}, "statefulset.other", apierrors.IsNotFound},
		"while the index is not ready":        {func(w *world) { w.Views = copied(w, "web-uid"); unread(w) }, "statefulset.web", apierrors.IsServiceUnavailable},
		"a workload that has been replaced":   {func(w *world) { w.Views = copied(w, "other") }, "statefulset.web", apierrors.IsNotFound},
		"a workload that is gone by then":     {func(w *world) { w.Views = copied(w, "web-uid"); w.Delete(statefulSet("")) }, "statefulset.web", apierrors.IsNotFound},
		"before the views have been rendered": {unread, "statefulset.web", apierrors.IsServiceUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, statefulSet("web-1"))
			w.runWeb("web-0", "web-1")
			tt.do(w)
			got, err := w.Get(genericapirequest.WithNamespace(t.Context(), ingesttest.Namespace), tt.name, &metav1.GetOptions{})
			if !tt.want(err) {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
}

// unread replaces the index by one that has read nothing.
func unread(w *world) { w.REST.Index = ingest.NewIndex(w.clock) }

// views are always the same.
type views struct{ *v1alpha1.ConfigDependency }

func (v views) Lookup(string, string) (*v1alpha1.ConfigDependency, error) {
	return v.ConfigDependency, nil
}

// copied returns the current view of StatefulSet web, with a UID of the workload, as one that stays.
func copied(w *world, uid types.UID) Views {
	found, err := w.Lookup(ingesttest.Namespace, "statefulset.web")
	if err != nil {
		panic(err)
	}
	found.Spec.WorkloadRef.UID = uid
	return views{found}
}

// Once the client has gone, no further pod is judged.
func TestGet_EndsWithTheRequest(t *testing.T) {
	w := newWorld(t, statefulSet("web-1"))
	w.runWeb("web-0", "web-1")
	w.runWeb("web-1", "web-1")
	ctx, cancel := context.WithCancel(genericapirequest.WithNamespace(t.Context(), ingesttest.Namespace))
	cancel()
	if got, err := w.Get(ctx, "statefulset.web", &metav1.GetOptions{}); !apierrors.IsTimeout(err) {
		t.Errorf("%v, %v", got, err)
	}
	w.Read(func(now decide.Evaluator) {
		key := w.Kinds.Key("apps/v1", "StatefulSet", ingesttest.Namespace, "web")
		if got := w.render(ctx, now, now.Graph.Workload(key)); len(got.Pods) != 1 {
			t.Errorf("%d pods were judged", len(got.Pods))
		}
	})
}
