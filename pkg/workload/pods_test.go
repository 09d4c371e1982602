// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/kind"
)

// newClient returns a client with objects, which reads workloads as the real one does.
func newClient(objects ...runtime.Object) Client {
	return Client{Interface: fake.NewClientset(objects...), Objects: live{dynamicfake.NewSimpleDynamicClient(scheme.Scheme, objects...), nil, nil}}
}

var web = map[string]string{"app": "web"}

func meta(name string, labels map[string]string, owner types.UID) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name + "-uid"), Labels: labels, ResourceVersion: "7"}
	if owner != "" {
		m.OwnerReferences = []metav1.OwnerReference{{UID: owner, Controller: new(true)}}
	}
	return m
}

func pod(name string, labels map[string]string, owner types.UID) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: meta(name, labels, owner)}
}

func replicaSet(name, revision string, owner types.UID) *appsv1.ReplicaSet {
	o := &appsv1.ReplicaSet{ObjectMeta: meta(name, map[string]string{"app": "web", "pod-template-hash": name}, owner)}
	o.Annotations = map[string]string{"deployment.kubernetes.io/revision": revision}
	return o
}

func finished(p *corev1.Pod, phase corev1.PodPhase) *corev1.Pod {
	p.Status.Phase = phase
	return p
}

func selector() *metav1.LabelSelector { return &metav1.LabelSelector{MatchLabels: web} }

func workload(kind dependency.WorkloadKind) *dependency.Workload {
	return &dependency.Workload{WorkloadKey: dependency.WorkloadKey{Kind: kind, Namespace: "shop", Name: "web"}, UID: "web-uid"}
}

func TestPodsAreThoseOfTheWorkload(t *testing.T) {
	deployment := &appsv1.Deployment{ObjectMeta: meta("web", nil, ""), Spec: appsv1.DeploymentSpec{Selector: selector()}}
	deployment.Annotations = map[string]string{"deployment.kubernetes.io/revision": "2"}
	unobserved := deployment.DeepCopy()
	unobserved.Generation = 2
	statefulSet := &appsv1.StatefulSet{ObjectMeta: meta("web", nil, ""), Spec: appsv1.StatefulSetSpec{Selector: selector()}, Status: appsv1.StatefulSetStatus{UpdateRevision: "web-b"}}
	daemonSet := &appsv1.DaemonSet{ObjectMeta: meta("web", nil, ""), Spec: appsv1.DaemonSetSpec{Selector: selector()}}
	daemonSet.Spec.Template.Labels = web
	revision := func(name string, n int64, owner types.UID, template string) *appsv1.ControllerRevision {
		return &appsv1.ControllerRevision{
			ObjectMeta: meta(name, map[string]string{"app": "web", "controller-revision-hash": name}, owner), Revision: n,
			Data: runtime.RawExtension{Raw: []byte(`{"spec":{"template":{"$patch":"replace",` + template + `}}}`)},
		}
	}
	const same, other = `"metadata":{"labels":{"app":"web"}},"spec":{"containers":null}`, `"spec":{"hostname":"x"}`
	run := func(name string, done bool, owner types.UID) *batchv1.Job {
		j := &batchv1.Job{ObjectMeta: meta(name, nil, owner)}
		if done {
			j.Status.CompletionTime = &metav1.Time{}
		}
		return j
	}
	of := func(job string) map[string]string { return map[string]string{batchv1.ControllerUidLabel: job + "-uid"} }
	tests := map[string]struct {
		kind     dependency.WorkloadKind
		objects  []runtime.Object
		want     []string
		revision string
	}{
		"a Deployment, through its ReplicaSets": {kind.Deployment, []runtime.Object{
			deployment, replicaSet("a", "1", "web-uid"), replicaSet("b", "2", "web-uid"), replicaSet("c", "2", "other"),
			pod("web-a", web, "a-uid"), pod("web-b", web, "b-uid"), pod("web-c", web, "c-uid"), pod("web-job", web, "job-uid"), pod("web-none", web, ""),
			pod("other", map[string]string{"app": "other"}, "a-uid"),
		}, []string{"web-a", "web-b"}, "b"},
		"a Deployment whose controller has not observed the template": {kind.Deployment, []runtime.Object{
			unobserved, replicaSet("b", "2", "web-uid"), pod("web-b", web, "b-uid"),
		}, []string{"web-b"}, ""},
		"a StatefulSet, without finished pods": {kind.StatefulSet, []runtime.Object{
			statefulSet, pod("web-0", web, "web-uid"), finished(pod("web-1", web, "web-uid"), corev1.PodFailed), finished(pod("web-2", web, "web-uid"), corev1.PodSucceeded),
		}, []string{"web-0"}, "web-b"},
		"a DaemonSet, by the revision of its template": {kind.DaemonSet, []runtime.Object{
			daemonSet, revision("a", 1, "web-uid", other), revision("b", 2, "web-uid", same), revision("c", 3, "other", same), pod("web-x", web, "web-uid"),
		}, []string{"web-x"}, "b"},
		"a DaemonSet with two revisions of its template, by the latest": {kind.DaemonSet, []runtime.Object{
			daemonSet, revision("b", 2, "web-uid", same), revision("a", 1, "web-uid", same), pod("web-x", web, "web-uid"),
		}, []string{"web-x"}, "b"},
		"a DaemonSet that was rolled back, before its revision has the highest number": {kind.DaemonSet, []runtime.Object{
			daemonSet, revision("a", 1, "web-uid", same), revision("b", 2, "web-uid", other), pod("web-x", web, "web-uid"),
		}, []string{"web-x"}, "a"},
		"a DaemonSet without a revision of its template": {kind.DaemonSet, []runtime.Object{
			daemonSet, revision("a", 1, "web-uid", other), pod("web-x", web, "web-uid"),
		}, []string{"web-x"}, ""},
		"a ReplicaSet": {kind.ReplicaSet, []runtime.Object{
			&appsv1.ReplicaSet{ObjectMeta: meta("web", nil, ""), Spec: appsv1.ReplicaSetSpec{Selector: selector()}}, pod("web-x", web, "web-uid"),
		}, []string{"web-x"}, ""},
		"a Job": {kind.Job, []runtime.Object{
			&batchv1.Job{ObjectMeta: meta("web", nil, ""), Spec: batchv1.JobSpec{Selector: selector()}}, pod("web-x", web, "web-uid"),
		}, []string{"web-x"}, ""},
		"a CronJob, through its active runs": {kind.CronJob, []runtime.Object{
			run("run", false, "web-uid"), run("done", true, "web-uid"), run("other", false, "other"),
			pod("run-x", of("run"), "run-uid"), pod("done-x", of("done"), "done-uid"), pod("other-x", of("other"), "other-uid"),
		}, []string{"run-x"}, ""},
		"a CronJob without an active run": {kind.CronJob, []runtime.Object{run("done", true, "web-uid"), pod("done-x", of("done"), "done-uid")}, nil, ""},
		"a Pod, which is its own pod": {kind.Pod, []runtime.Object{
			pod("web", web, ""), pod("other", web, ""), pod("web-x", web, "web-uid"),
		}, []string{"web"}, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			client := newClient(tt.objects...)
			selection, err := Select(t.Context(), client, workload(tt.kind), true)
			if err != nil {
				t.Fatal(err)
			}
			if selection.Revision != tt.revision {
				t.Errorf("revision = %q, want %q", selection.Revision, tt.revision)
			}
			withoutRevisions(t, tt.kind, tt.objects, selection)
			pods, more, err := podsOf(t, client, tt.kind, 100)
			if err != nil || more {
				t.Fatalf("more = %v, error %v; want all pods", more, err)
			}
			var names []string
			for i := range pods {
				names = append(names, pods[i].Name)
			}
			slices.Sort(names)
			if diff := cmp.Diff(tt.want, names); diff != "" {
				t.Errorf("pods (-want +got):\n%s", diff)
			}
		})
	}
}

// Without the right to list Jobs, the status of a CronJob names its active runs.
func TestPodsOfACronJobWithoutJobs(t *testing.T) {
	active := func(uids ...types.UID) *batchv1.CronJob {
		c := &batchv1.CronJob{ObjectMeta: meta("web", nil, "")}
		for _, uid := range uids {
			c.Status.Active = append(c.Status.Active, corev1.ObjectReference{UID: uid})
		}
		return c
	}
	of := func(job string) *corev1.Pod {
		return pod(job+"-x", map[string]string{batchv1.ControllerUidLabel: job + "-uid"}, types.UID(job+"-uid"))
	}
	many := make([]types.UID, maxRuns+1)
	for i := range many {
		many[i] = types.UID(fmt.Sprint("run-", i, "-uid"))
	}
	another := active("run-uid")
	another.UID = "another"
	for name, tt := range map[string]struct {
		cronJob *batchv1.CronJob // nil: it was deleted
		want    []string
		gone    bool
	}{
		"two active runs":              {active("run-uid", "again-uid"), []string{"again-x", "run-x"}, false},
		"no active run":                {active(), nil, false},
		"more runs than are looked at": {active(many...), []string{"run-0-x"}, false},
		"deleted":                      {nil, nil, true},
		"created again":                {another, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			objects := []runtime.Object{of("run"), of("again"), of("other"), of("run-0"), of(fmt.Sprint("run-", maxRuns))}
			if tt.cronJob != nil {
				objects = append(objects, tt.cronJob)
			}
			client := newClient(objects...)
			client.WithoutJobs = true
			pods, more, err := podsOf(t, client, kind.CronJob, 100)
			if apierrors.IsNotFound(err) != tt.gone || err != nil && !tt.gone || more {
				t.Fatalf("more = %t, error %v", more, err)
			}
			var names []string
			for i := range pods {
				names = append(names, pods[i].Name)
			}
			slices.Sort(names)
			if diff := cmp.Diff(tt.want, names); diff != "" {
				t.Errorf("pods (-want +got):\n%s", diff)
			}
			for _, action := range client.Interface.(*fake.Clientset).Actions() {
				if action.GetResource().Resource == "jobs" {
					t.Errorf("asked to %s jobs", action.GetVerb())
				}
			}
		})
	}
}

// withoutRevisions checks that the same pods are selected without listing ControllerRevisions, which only tell the age of a
// revision, and the revision of a DaemonSet.
func withoutRevisions(t *testing.T, name dependency.WorkloadKind, objects []runtime.Object, with *Selection) {
	t.Helper()
	client := newClient(objects...)
	got, err := Select(t.Context(), client, workload(name), false)
	if err != nil {
		t.Fatal(err)
	}
	want := *with
	switch name {
	case kind.StatefulSet:
		want.RevisionCreated = time.Time{}
	case kind.DaemonSet:
		want.Revision, want.RevisionCreated = "", time.Time{}
	}
	if diff := cmp.Diff(&want, got, cmp.AllowUnexported(Selection{})); diff != "" {
		t.Errorf("without ControllerRevisions: selection (-want +got):\n%s", diff)
	}
	for _, a := range client.Interface.(*fake.Clientset).Actions() {
		if a.GetResource().Resource == "controllerrevisions" {
			t.Errorf("unexpected %s of ControllerRevisions", a.GetVerb())
		}
	}
}

// podsOf returns at most limit pods of a workload.
func podsOf(t *testing.T, client Client, kind dependency.WorkloadKind, limit int) (pods []corev1.Pod, more bool, err error) {
	t.Helper()
	s, err := Select(t.Context(), client, workload(kind), true)
	if err != nil {
		return nil, false, err
	}
	more, err = s.Each(t.Context(), client, limit, func(p *corev1.Pod) { pods = append(pods, *p) })
	return pods, more, err
}

// A workload that was deleted and created again is a different one.
func TestPodsOfAWorkloadThatIsGone(t *testing.T) {
	again := func(m metav1.ObjectMeta) metav1.ObjectMeta { m.UID = "another"; return m }
	for of, o := range map[dependency.WorkloadKind]runtime.Object{
		kind.Deployment:  &appsv1.Deployment{ObjectMeta: again(meta("web", nil, "")), Spec: appsv1.DeploymentSpec{Selector: selector()}},
		kind.StatefulSet: &appsv1.StatefulSet{ObjectMeta: again(meta("web", nil, "")), Spec: appsv1.StatefulSetSpec{Selector: selector()}},
		kind.DaemonSet:   &appsv1.DaemonSet{ObjectMeta: again(meta("web", nil, "")), Spec: appsv1.DaemonSetSpec{Selector: selector()}},
		kind.ReplicaSet:  &appsv1.ReplicaSet{ObjectMeta: again(meta("web", nil, "")), Spec: appsv1.ReplicaSetSpec{Selector: selector()}},
		kind.Job:         &batchv1.Job{ObjectMeta: again(meta("web", nil, "")), Spec: batchv1.JobSpec{Selector: selector()}},
	} {
		for name, objects := range map[string][]runtime.Object{"deleted": nil, "created again": {o}} {
			t.Run(fmt.Sprint(of, " ", name), func(t *testing.T) {
				if _, err := Select(t.Context(), newClient(objects...), workload(of), false); !apierrors.IsNotFound(err) {
					t.Errorf("error = %v, want NotFound", err)
				}
			})
		}
	}
}

// A workload may have more pods than fit into memory, so they are read in pages, up to the limit.
func TestPodsAreReadInPages(t *testing.T) {
	const all = 1700
	for limit, want := range map[int]struct {
		pods int
		more bool
		asks []int64
	}{
		1200: {1200, true, []int64{500, 500, 200}},
		all:  {all, false, []int64{500, 500, 500, 200}},
		5000: {all, false, []int64{500, 500, 500, 500}},
	} {
		t.Run(fmt.Sprint("at most ", limit), func(t *testing.T) {
			client := newClient(&appsv1.StatefulSet{ObjectMeta: meta("web", nil, ""), Spec: appsv1.StatefulSetSpec{Selector: selector()}})
			var asks []int64
			client.Interface.(*fake.Clientset).PrependReactor("list", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
				options := action.(clienttesting.ListActionImpl).ListOptions
				asks = append(asks, options.Limit)
				first, err := strconv.Atoi("0" + options.Continue)
				if err != nil {
					t.Error(err)
				}
				list := &corev1.PodList{}
				for i := first; i < min(all, first+int(options.Limit)); i++ {
					list.Items = append(list.Items, *pod(fmt.Sprintf("web-%04d", i), web, "web-uid"))
				}
				if next := first + len(list.Items); next < all {
					list.Continue = fmt.Sprint(next)
				}
				return true, list, nil
			})
			pods, more, err := podsOf(t, client, kind.StatefulSet, limit)
			if err != nil || len(pods) != want.pods || more != want.more {
				t.Errorf("got %d pods, more = %v, error %v", len(pods), more, err)
			}
			if diff := cmp.Diff(want.asks, asks); diff != "" {
				t.Errorf("limits (-want +got):\n%s", diff)
			}
		})
	}
}

// A Job that can be replaced has only pods that are newer than itself. Without that, nothing is known of their age.
func TestSelect_AgeOfAJob(t *testing.T) {
	at := metav1.NewTime(time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC))
	o := &batchv1.Job{ObjectMeta: meta("web", nil, ""), Spec: batchv1.JobSpec{Selector: selector()}}
	o.CreationTimestamp = at
	for reruns, want := range map[bool]time.Time{true: at.Time, false: {}} {
		client := newClient(o.DeepCopy())
		if reruns {
			client.Kinds = client.Kinds.WithReruns()
		}
		if s, err := Select(t.Context(), client, workload(kind.Job), true); err != nil || !s.RevisionCreated.Equal(want) {
			t.Errorf("run again: %v: created = %v (%v), want %v", reruns, s.RevisionCreated, err, want)
		}
	}
}

// Jobs that have failed are not active, although they have no completion time.
func TestActive_LeavesOutFinishedJobs(t *testing.T) {
	run := func(name string, conditions ...batchv1.JobCondition) *batchv1.Job {
		return &batchv1.Job{ObjectMeta: meta(name, nil, "web-uid"), Status: batchv1.JobStatus{Conditions: conditions}}
	}
	of := func(typ batchv1.JobConditionType, status corev1.ConditionStatus) batchv1.JobCondition {
		return batchv1.JobCondition{Type: typ, Status: status}
	}
	client := newClient(
		run("complete", of(batchv1.JobComplete, corev1.ConditionTrue)), run("failed", of(batchv1.JobFailed, corev1.ConditionTrue)),
		run("active"), run("failing", of(batchv1.JobFailureTarget, corev1.ConditionTrue)), run("resumed", of(batchv1.JobSuspended, corev1.ConditionFalse)),
		run("unfinished", of(batchv1.JobFailed, corev1.ConditionFalse)),
	)
	got, err := Active(t.Context(), client, workload(kind.CronJob))
	slices.Sort(got)
	if diff := cmp.Diff([]types.UID{"active-uid", "failing-uid", "resumed-uid", "unfinished-uid"}, got); diff != "" || err != nil {
		t.Errorf("active Jobs (-want +got), %v:\n%s", err, diff)
	}
}
