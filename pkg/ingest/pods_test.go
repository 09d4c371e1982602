// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/ingest"
	"github.com/configdep/configdep/pkg/ingest/ingesttest"
	"github.com/configdep/configdep/pkg/kind"
)

// fleet is a cluster with workloads and pods, and what a sink was told of workloads.
type fleet struct {
	*ingesttest.Cluster
	t     *testing.T
	clock *testingclock.FakePassiveClock
	told  []dependency.WorkloadKey
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	kinds, err := kind.NewTable([]string{"argo-rollout", "knative-service"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	f := &fleet{t: t, clock: testingclock.NewFakePassiveClock(time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC))}
	f.Cluster = ingesttest.New(t, f.clock)
	f.Kinds = kinds
	f.Start(ingest.NewIndex(f.clock, f), ingest.Scope{Kinds: kinds}, 1)
	f.List()
	return f
}

// Set sets an object. Workloads read a ConfigMap: of others, pods are not told.
func (f *fleet) Set(o ingesttest.Object) {
	reads := corev1.PodSpec{Containers: []corev1.Container{{Name: "app", EnvFrom: []corev1.EnvFromSource{{
		ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "site"}},
	}}}}}
	switch o := o.(type) {
	case *appsv1.Deployment:
		o.Spec.Template.Spec = reads
	case *appsv1.ReplicaSet:
		o.Spec.Template.Spec = reads
	case *appsv1.StatefulSet:
		o.Spec.Template.Spec = reads
	case *appsv1.DaemonSet:
		o.Spec.Template.Spec = reads
	case *batchv1.Job:
		o.Spec.Template.Spec = reads
	case *batchv1.CronJob:
		o.Spec.JobTemplate.Spec.Template.Spec = reads
	}
	f.Cluster.Set(o)
}

func (f *fleet) tick() { f.clock.SetTime(f.clock.Now().Add(10 * time.Second)) }

func (*fleet) Synced(decide.Evaluator, dependency.Progress) {}
func (*fleet) Progressed(dependency.Progress)               {}
func (f *fleet) Changed(_ decide.Evaluator, _ dependency.Progress, delta dependency.Delta) {
	f.told = append(f.told, delta.Workloads...)
}

// expect compares the pods of a workload, and whether it was told since the last call.
func (f *fleet) expect(what string, key dependency.WorkloadKey, told bool, pods ...string) {
	f.t.Helper()
	var got []string
	f.Read(func(now decide.Evaluator) {
		w := now.Graph.Workload(key)
		if w == nil {
			got = append(got, "no workload")
			return
		}
		now.Graph.PodsOf(w, func(p *dependency.Pod) bool {
			got = append(got, p.Name)
			return true
		})
	})
	if !slices.Equal(got, pods) || slices.Contains(f.told, key) != told {
		f.t.Errorf("%s: %s has the pods %v, want %v; told: %v", what, key.ViewName(), got, pods, f.told)
	}
	f.told = nil
}

func (f *fleet) revision(what string, key dependency.WorkloadKey, want string) {
	f.t.Helper()
	f.Read(func(now decide.Evaluator) {
		if got := now.Graph.CurrentRevision(now.Graph.Workload(key)); got != want {
			f.t.Errorf("%s: the current revision is %q, want %q", what, got, want)
		}
	})
}

func keyOf(kind dependency.WorkloadKind, name string) dependency.WorkloadKey {
	return dependency.WorkloadKey{Kind: kind, Namespace: ingesttest.Namespace, Name: name}
}

// podOf returns a pod of a controller; of none if its kind is empty. The labels are KEY=VALUE.
func podOf(name, apiVersion, kind, controller string, uid types.UID, labels ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app"}}}}
	if kind != "" {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: controller, UID: uid, Controller: new(true)}}
	}
	for _, label := range labels {
		key, value, _ := strings.Cut(label, "=")
		p.Labels[key] = value
	}
	return p
}

// custom returns an object of a custom kind, which reads a ConfigMap.
func (f *fleet) custom(of dependency.WorkloadKind, json string) kind.Object {
	f.t.Helper()
	k := f.Kinds.Of(of)
	gvk := k.GroupVersionKind()
	o, err := k.Decode([]byte(fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"spec":{"template":{"spec":{"containers":[{"name":"app","envFrom":[{"configMapRef":{"name":"site"}}]}]}}},%s}`, gvk.GroupVersion().String(), gvk.Kind, json)))
	if err != nil {
		f.t.Fatal(err)
	}
	return o
}

func job(name, cronJob string, uid types.UID) *batchv1.Job {
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
	if cronJob != "" {
		j.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "CronJob", Name: cronJob, UID: uid, Controller: new(true)}}
	}
	return j
}

// The pods of a workload of each kind are found, whichever of both comes first, and it is told of them.
func TestPods_OfEachKind(t *testing.T) {
	type meta = metav1.ObjectMeta
	for name, tt := range map[string]struct {
		key      dependency.WorkloadKey
		workload func(*fleet) []ingesttest.Object
		pod      *corev1.Pod
	}{
		"Deployment": {keyOf(kind.Deployment, "web"), func(*fleet) []ingesttest.Object {
			return []ingesttest.Object{&appsv1.Deployment{ObjectMeta: meta{Name: "web"}}}
		}, podOf("p", "apps/v1", "ReplicaSet", "web-6d4f", "rs", "pod-template-hash=6d4f")},
		"ReplicaSet": {keyOf(kind.ReplicaSet, "web"), func(*fleet) []ingesttest.Object {
			return []ingesttest.Object{&appsv1.ReplicaSet{ObjectMeta: meta{Name: "web", UID: "u"}}}
		}, podOf("p", "apps/v1", "ReplicaSet", "web", "u")},
		"StatefulSet": {keyOf(kind.StatefulSet, "db"), func(*fleet) []ingesttest.Object {
			return []ingesttest.Object{&appsv1.StatefulSet{ObjectMeta: meta{Name: "db", UID: "u"}}}
		}, podOf("p", "apps/v1", "StatefulSet", "db", "u", "controller-revision-hash=db-1")},
		"DaemonSet": {keyOf(kind.DaemonSet, "log"), func(*fleet) []ingesttest.Object {
			return []ingesttest.Object{&appsv1.DaemonSet{ObjectMeta: meta{Name: "log", UID: "u"}}}
		}, podOf("p", "apps/v1", "DaemonSet", "log", "u", "pod-template-generation=1")},
		"Job": {keyOf(kind.Job, "once"), func(*fleet) []ingesttest.Object {
			return []ingesttest.Object{job("once", "", "")}
		}, podOf("p", "batch/v1", "Job", "once", "once")},
		"CronJob": {keyOf(kind.CronJob, "report"), func(*fleet) []ingesttest.Object {
			return []ingesttest.Object{&batchv1.CronJob{ObjectMeta: meta{Name: "report", UID: "u"}}, job("report-1", "report", "u")}
		}, podOf("p", "batch/v1", "Job", "report-1", "report-1")},
		"Rollout": {keyOf("Rollout", "web"), func(f *fleet) []ingesttest.Object {
			return []ingesttest.Object{f.custom("Rollout", `"metadata":{"name":"web"}`)}
		}, podOf("p", "apps/v1", "ReplicaSet", "web-77", "rs", "rollouts-pod-template-hash=77")},
		"by labels": {keyOf("KnativeService", "web"), func(f *fleet) []ingesttest.Object {
			return []ingesttest.Object{f.custom("KnativeService", `"metadata":{"name":"web"}`)}
		}, podOf("p", "apps/v1", "ReplicaSet", "web-00001-deployment-1", "rs", "pod-template-hash=1", "serving.knative.dev/service=web")},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t)
			set := func(objects ...ingesttest.Object) {
				for _, o := range objects {
					f.Set(o.DeepCopyObject().(ingesttest.Object))
				}
			}
			set(tt.workload(f)...)
			f.expect("the workload", tt.key, true)
			set(tt.pod)
			f.expect("its pod", tt.key, true, "p")
			set(tt.pod)
			f.expect("another write", tt.key, false, "p")
			f.Relist(func() {})
			f.expect("a list", tt.key, false, "p")
			f.Delete(tt.pod.DeepCopy())
			f.expect("without the pod", tt.key, true)
			set(tt.pod)
			f.Relist(func() { f.Delete(tt.pod.DeepCopy()) })
			f.expect("a list that lacks it", tt.key, true)

			f = newFleet(t)
			set(tt.pod)
			objects := tt.workload(f)
			slices.Reverse(objects)
			set(objects...)
			f.expect("the pod first", tt.key, true, "p")
		})
	}
}

// The pods of a workload that was deleted are not those of a later one of the same name.
func TestPods_OfAWorkloadCreatedAgain(t *testing.T) {
	web, db := keyOf(kind.Deployment, "web"), keyOf(kind.StatefulSet, "db")
	report := keyOf(kind.CronJob, "report")
	f := newFleet(t)
	create := func(uid types.UID) {
		f.Set(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: uid}})
		f.Set(&appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "db", UID: uid}})
		f.Set(&batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Name: "report", UID: uid}})
	}
	remove := func() {
		f.Delete(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web"}})
		f.Delete(&appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "db"}})
		f.Delete(&batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Name: "report"}})
	}
	create("first")
	f.Set(podOf("web-1", "apps/v1", "ReplicaSet", "web-6d4f", "rs1", "pod-template-hash=6d4f"))
	f.Set(podOf("db-0", "apps/v1", "StatefulSet", "db", "first"))
	f.Set(job("report-1", "report", "first"))
	f.Set(podOf("report-1-x", "batch/v1", "Job", "report-1", "report-1"))
	f.expect("first", web, true, "web-1")
	f.expect("first", db, false, "db-0")
	f.expect("first", report, false, "report-1-x")
	again := func(what string) {
		t.Helper()
		f.expect(what, web, true)
		f.expect(what, db, false)
		f.expect(what, report, false)
	}
	f.tick()
	remove()
	create("second")
	again("second")
	f.tick()
	f.Relist(func() {
		remove()
		create("third")
	})
	again("third, as a list shows")
	f.Relist(func() {
		f.Delete(podOf("db-0", "", "", "", ""))
		f.Set(podOf("db-0", "apps/v1", "StatefulSet", "db", "third"))
		f.Set(podOf("web-2", "apps/v1", "ReplicaSet", "web-6d4f", "rs2", "pod-template-hash=6d4f"))
	})
	f.expect("its own", db, true, "db-0")
	f.expect("its own", web, false, "web-2")
}

// A pod may get another controller, or one of the same name may take its place.
func TestPods_ChangeTheirController(t *testing.T) {
	a, b, bare := keyOf(kind.StatefulSet, "a"), keyOf(kind.StatefulSet, "b"), keyOf(kind.Pod, "p")
	change := map[string]func(*fleet, func()){
		"live": func(_ *fleet, f func()) { f() }, "in a list": func(c *fleet, f func()) { c.Relist(f) },
	}
	for name, change := range change {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t)
			f.Set(&appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "a"}})
			f.Set(&appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "b", UID: "b"}})
			f.told = nil
			of := func(name string) *corev1.Pod { return podOf("p", "apps/v1", "StatefulSet", name, types.UID(name)) }
			both := func(what string, ofA, ofB, alone []string) {
				t.Helper()
				told := f.told
				f.expect(what, a, len(ofA) > 0 || slices.Contains(told, a), ofA...)
				f.told = told
				f.expect(what, b, len(ofB) > 0 || slices.Contains(told, b), ofB...)
				f.told = told
				f.expect(what, bare, slices.Contains(told, bare), alone...)
			}
			p, none := []string{"p"}, []string(nil)
			gone := []string{"no workload"}
			change(f, func() { f.Set(podOf("p", "", "", "", "")) })
			both("alone", none, none, p)
			f.Read(func(now decide.Evaluator) {
				if w := now.Graph.Workload(bare); w == nil || w.ResourceVersion == "" {
					t.Errorf("the workload of the pod: %+v", w)
				}
			})
			change(f, func() { f.Set(of("a")) })
			if !slices.Contains(f.told, bare) {
				t.Error("not told that it is no workload any longer")
			}
			both("adopted", p, none, gone)
			change(f, func() { f.Set(of("b")) })
			both("another controller", none, p, gone)
			change(f, func() {
				f.Delete(of("b"))
				f.Set(of("a"))
			})
			both("another pod", p, none, gone)
			change(f, func() { f.Set(podOf("p", "example.com/v1", "Shop", "x", "x")) })
			both("a controller that is not known", none, none, gone)
			f.Read(func(now decide.Evaluator) {
				if now.Graph.Pods() != 0 {
					t.Errorf("%d pods are kept", now.Graph.Pods())
				}
			})
			change(f, func() { f.Set(podOf("p", "", "", "", "")) })
			both("alone again", none, none, p)
			change(f, func() { f.Delete(podOf("p", "", "", "", "")) })
			both("gone", none, none, gone)
		})
	}
}

// A Job is either a run of its CronJob or a workload.
func TestJobs_ChangeTheirController(t *testing.T) {
	cron, alone := keyOf(kind.CronJob, "report"), keyOf(kind.Job, "report-1")
	f := newFleet(t)
	f.Set(&batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Name: "report", UID: "u"}})
	f.Set(podOf("p", "batch/v1", "Job", "report-1", "report-1"))
	f.told = nil
	step := func(what string, j *batchv1.Job, tellsJob bool, ofCron, ofJob string) {
		t.Helper()
		f.Set(j)
		told := f.told
		f.expect(what, cron, true, strings.Fields(ofCron)...)
		f.told = told
		f.expect(what, alone, tellsJob, ofJob)
	}
	step("a run", job("report-1", "report", "u"), false, "p", "no workload")
	step("orphaned", job("report-1", "", ""), true, "", "p")
	step("adopted", job("report-1", "report", "u"), true, "p", "no workload")
	f.Relist(func() { f.Delete(job("report-1", "", "")) })
	f.expect("deleted", cron, true)
}

// The label of the pods with the current template is known of each kind that has one.
func TestPods_CurrentRevision(t *testing.T) {
	f := newFleet(t)
	web, db, log, rollout := keyOf(kind.Deployment, "web"), keyOf(kind.StatefulSet, "db"), keyOf(kind.DaemonSet, "log"), keyOf("Rollout", "web")
	deployment := func(number string, observed int64) {
		f.Set(&appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "d", Generation: 5, Annotations: map[string]string{kind.RevisionAnnotation: number}},
			Status:     appsv1.DeploymentStatus{ObservedGeneration: observed},
		})
	}
	set := func(hash, number string, owner types.UID) {
		f.Set(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Name: "web-" + hash, Labels: map[string]string{"pod-template-hash": hash}, Annotations: map[string]string{kind.RevisionAnnotation: number},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: owner, Controller: new(true)}},
		}})
	}
	deployment("1", 5)
	f.revision("no ReplicaSet", web, "")
	f.told = nil
	set("a", "1", "d")
	f.revision("a ReplicaSet", web, "a")
	f.expect("a ReplicaSet", web, true)
	set("a", "1", "d")
	f.expect("a write of it", web, false)
	set("b", "2", "d")
	f.revision("a new one", web, "")
	deployment("2", 5)
	f.revision("a rollout", web, "b")
	f.Relist(func() {
		set("a", "3", "d")
		deployment("3", 5)
	})
	f.revision("a rollback, as a list shows", web, "a")
	deployment("3", 4)
	f.revision("another template", web, "")
	deployment("3", 5)
	f.Relist(func() { f.Delete(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "web-a"}}) })
	f.revision("it is deleted", web, "")
	f.expect("it is deleted", web, true)

	f.Set(&appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "db", Generation: 2}, Status: appsv1.StatefulSetStatus{ObservedGeneration: 2, UpdateRevision: "db-2"}})
	f.revision("a StatefulSet", db, "db-2")
	f.Set(&appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "db", Generation: 3}, Status: appsv1.StatefulSetStatus{ObservedGeneration: 2, UpdateRevision: "db-2"}})
	f.revision("another template of a StatefulSet", db, "")
	daemonSet := func(observed int64) {
		f.Set(&appsv1.DaemonSet{
			ObjectMeta: metav1.ObjectMeta{Name: "log", Generation: 9, Annotations: map[string]string{appsv1.DeprecatedTemplateGeneration: "7"}},
			Status:     appsv1.DaemonSetStatus{ObservedGeneration: observed},
		})
	}
	daemonSet(9)
	f.revision("a DaemonSet", log, "7")
	f.Set(podOf("log-x", "apps/v1", "DaemonSet", "log", "u", "pod-template-generation=7", "controller-revision-hash=r"))
	f.Read(func(now decide.Evaluator) {
		if p := now.Graph.Pod(dependency.PodKey{Namespace: ingesttest.Namespace, Name: "log-x"}); p == nil || p.Revision != "7" {
			t.Errorf("a pod of a DaemonSet: %+v", p)
		}
	})
	daemonSet(8)
	f.revision("another template of a DaemonSet", log, "")
	f.Set(f.custom("Rollout", `"metadata":{"name":"web","generation":2},"status":{"observedGeneration":"2","currentPodHash":"6f7d"}`))
	f.revision("a Rollout", rollout, "6f7d")
	f.Set(f.custom("Rollout", `"metadata":{"name":"web","generation":3},"status":{"observedGeneration":"2","currentPodHash":"6f7d"}`))
	f.revision("another template of a Rollout", rollout, "")
}

// A pod that is not new in a list is no sign of a restore of etcd, and one that is too old is.
func TestPods_Restore(t *testing.T) {
	f := newFleet(t)
	f.Set(podOf("p", "apps/v1", "StatefulSet", "db", "u"))
	f.Set(podOf("other", "example.com/v1", "Shop", "x", "x")) // of which nothing is kept
	f.Relist(func() {})
	if n := f.Index().Progress().Restored; n != 0 {
		t.Errorf("restored %d times", n)
	}
	f.Unseen(func() { f.Set(podOf("q", "apps/v1", "StatefulSet", "db", "u")) })
	f.Bookmark()
	f.Relist(func() {})
	if n := f.Index().Progress().Restored; n != 1 {
		t.Errorf("restored %d times", n)
	}
}
