// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package decide_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/judge"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
)

// A Deployment adopts the pods of one that was deleted without them. They are older than the Deployment.
func TestDecide_AdoptedPods(t *testing.T) {
	x := offWith(t)
	adopted := func(d *appsv1.Deployment) { d.UID, d.CreationTimestamp = "web-2", metav1.NewTime(x.now) }
	x.Delete(x.deployment)
	x.tick(time.Hour)
	x.edit(adopted)
	x.want("its ReplicaSet has yet to be adopted", outcome{decide.Unknown, decide.ReasonPodsNotFound, decide.None, ""})
	x.edit(x.control)
	if d := x.want("adopted", nothing); d.Pods.Total != 2 {
		t.Errorf("pods = %+v, want 2", d.Pods)
	}
	optIn(x)
	x.act()
	x.tick(time.Minute)
	password("2")(x)
	x.wantRestarts("a change", db)
}

// What changes after opting in restarts the workload, also if something was missing all the while.
func TestDecide_OptsInWhileSomethingIsMissing(t *testing.T) {
	x := newWorld(t, podOf(env(dependency.Secret, "db", "password"), envFrom(dependency.ConfigMap, "extra")), secret("db", "password", "1"), configMap("extra", "a", "1"))
	optOut(x)
	x.remove(dependency.ConfigMap, "extra")
	x.tick(time.Hour)
	optIn(x)
	x.want("opted in", outcome{decide.Blocked, decide.ReasonSourceMissing, decide.WriteRecord, ""})
	x.act()
	x.want("recorded", outcome{decide.Blocked, decide.ReasonSourceMissing, decide.None, ""})
	x.tick(time.Hour)
	password("2")(x)
	x.tick(time.Hour)
	x.set(configMap("extra", "a", "1"))
	x.wantRestarts("it comes back", db)
}

// The replica that adopts content has another clock than the one that saw it change.
func TestDecide_AdoptedByAClockBehind(t *testing.T) {
	x := offWith(t)
	password("2")(x)
	x.tick(time.Second)
	optIn(x)
	d := x.decide()
	d.Record.At = d.Record.At.Add(-2 * time.Second)
	for id, entry := range d.Record.Sources {
		if entry.Adopted.IsZero() {
			t.Fatalf("%s is not adopted: %+v", id, entry)
		}
		entry.Adopted = entry.Adopted.Add(-2 * time.Second)
		d.Record.Sources[id] = entry
	}
	x.patch(record.Patch(x.workload(), d.Record))
	if got := x.restarts(); len(got) > 0 {
		t.Errorf("opting in: restarts for %q", got)
	}
}

// The owner has released content and template together. The status of the Deployment is read before the events of its pods.
func TestDecide_PodsLagBehindTheStatus(t *testing.T) {
	x := oneSecret(t)
	x.adopt()
	password("2")(x)
	x.image("web:2")
	x.tick(time.Hour)
	x.edit(func(d *appsv1.Deployment) { d.Status.UpdatedReplicas = d.Status.Replicas })
	if d := x.decide(); d.Action == decide.RollOut || d.Pods.Stale != 1 {
		t.Errorf("decision = %+v, pods %+v, want no restart for a pod that is about to be gone", d, d.Pods)
	}
	x.rollOut()
	x.wantRestarts("the pods are read")
}

// A pod that does not become ready keeps the rollout from being complete. That does not hide that others run with old content.
func TestDecide_StaleWhileAPodIsNotReady(t *testing.T) {
	x := offWith(t)
	x.edit(func(d *appsv1.Deployment) { d.Status.ReadyReplicas, d.Status.AvailableReplicas = 1, 1 })
	x.want("nothing has changed", outcome{State: decide.RollingOut, Reason: "PodsUpdating"})
	x.tick(time.Hour)
	password("2")(x)
	x.tick(time.Hour)
	x.want("changed", stale(decide.ReasonNotOptedIn, decide.None))
}

// Pods of the template before do not read what only the new one names.
func TestDecide_OlderPodsAndANewSource(t *testing.T) {
	x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1"), configMap("new", "a", "1"))
	x.scale(3)
	x.adopt()
	x.tick(time.Hour)
	x.set(configMap("new", "a", "2"))
	x.tick(time.Hour)
	x.edit(func(d *appsv1.Deployment) {
		c := &d.Spec.Template.Spec.Containers[0]
		c.EnvFrom = append(c.EnvFrom, corev1.EnvFromSource{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "new"}}})
	})
	x.rollOutSome(1)
	x.tick(time.Hour)
	failed(x)
	d := x.decide()
	if d.Action == decide.RollOut || d.Pods.Stale != 0 || d.Pods.Unknown != 2 || d.Pods.Current != 1 || d.Pods.Reason != judge.ReasonOlderTemplate {
		t.Errorf("decision = %+v, pods %+v, want no restart, and two pods of which it is not known", d, d.Pods)
	}
}

// Of a workload that is being deleted, it is said what its pods run with.
func TestDecide_StaleUntilItsEnd(t *testing.T) {
	x := offWith(t)
	x.tick(time.Hour)
	x.edit(func(d *appsv1.Deployment) { d.DeletionTimestamp = &metav1.Time{Time: x.now} })
	x.want("nothing has changed", outcome{State: decide.InSync, Reason: decide.ReasonTerminating})
	password("2")(x)
	x.tick(time.Hour)
	x.want("changed", stale(decide.ReasonTerminating, decide.None))
}

// One container waits, and the other one runs.
func TestDecide_OneContainerWaits(t *testing.T) {
	spec := podOf(env(dependency.Secret, "db", "password"))
	spec.Containers = append(spec.Containers, corev1.Container{Name: "waits"})
	x := newWorld(t, spec, secret("db", "password", "1"))
	optOut(x)
	wait := func(container int) {
		p := x.pods[0].DeepCopy()
		p.Status.ContainerStatuses[container].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
		x.pods[0] = p
		x.Set(p)
	}
	wait(1)
	if d := x.want("one", nothing); strings.Contains(d.Message, "No container has started") {
		t.Errorf("message = %s", d.Message)
	}
	wait(0)
	x.want("both", outcome{State: decide.InSync, Reason: decide.ReasonNotStarted})
}

// Not all pods are judged if very many could have read very many sources.
func TestDecide_TooManyPods(t *testing.T) {
	x := newWorld(t, podOf())
	x.annotate(policy.SourcesAnnotation, "configmap/*")
	for i := range dependency.MaxMatched {
		x.set(configMap(fmt.Sprint("c", i), "a", "1"))
	}
	x.tick(time.Hour)
	x.scale(501)
	x.image("web:2")
	x.rollOut()
	x.tick(time.Hour)
	x.act()
	if d := x.decide(); d.State != decide.Unknown || d.Reason != judge.ReasonTooManyPods || d.Pods.Unknown != 1 || d.Pods.Current != 500 {
		t.Errorf("decision = %s/%s, pods %+v, want one pod that was not judged", d.State, d.Reason, d.Pods)
	}
	x.set(configMap("c7", "a", "2"))
	x.tick(time.Hour)
	if d := x.decide(); d.Action != decide.RollOut {
		t.Errorf("decision = %+v, want a restart for what the others have not read", d)
	}
}

// A leader that had no history records that all pods run with the current content. Replicas that doubt it, as the content went there and back when a pod
// started, have nothing to restart: the record says what was known then. What changes after it counts as ever.
func TestDecide_RecordSettlesDoubts(t *testing.T) {
	prove := func(x *world) {
		e := x.evaluate()
		r := e.Present()
		r.At = x.now
		x.patch(record.Patch(e.Workload, r))
	}
	doubt := func(t *testing.T) *world {
		t.Helper()
		x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1"))
		x.adopt()
		x.set(secret("db", "password", "2"))
		x.set(secret("db", "password", "1"))
		x.crash()
		x.tick(time.Second)
		x.want("in doubt", outcome{State: decide.Settling, Reason: decide.ReasonSourceChanged, Trigger: db})
		return x
	}
	x := doubt(t)
	prove(x)
	x.want("proven by another leader", outcome{State: decide.Unknown, Reason: judge.ReasonClockMargin})
	x.set(secret("db", "password", "2"))
	x.set(secret("db", "password", "1"))
	x.crash()
	x.tick(time.Minute)
	x.want("in doubt after the record", rollOut(db))

	// A replica whose watch was interrupted sees a change after another one has recorded the new content.
	x = newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1"))
	x.adopt()
	x.crash()
	x.tick(2 * time.Second)
	x.set(secret("db", "password", "2"))
	x.tick(-time.Second)
	prove(x)
	x.tick(time.Minute)
	x.want("seen late", outcome{State: decide.Unknown, Reason: judge.ReasonClockMargin})
	x.set(secret("db", "password", "3"))
	x.set(secret("db", "password", "2"))
	x.tick(time.Minute)
	x.want("there and back after it", rollOut(db))

	// Likewise, but it lists the change, so that there may have been others in between: the time of the last one tells when at the latest.
	x = newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1"))
	x.adopt()
	x.crash()
	x.Unseen(func() { x.set(secret("db", "password", "2")) })
	x.tick(7 * time.Second)
	x.List()
	x.tick(-time.Second)
	prove(x)
	x.tick(time.Minute)
	x.want("listed late", outcome{State: decide.Unknown, Reason: judge.ReasonWrittenSinceStart})
	x.Unseen(func() { x.set(secret("db", "password", "3")); x.set(secret("db", "password", "2")) })
	x.List()
	x.tick(time.Minute)
	x.want("there and back after it, listed", rollOut(db))

	x = doubt(t)
	x.tick(-2 * time.Second) // the container starts later
	prove(x)
	x.tick(time.Minute)
	x.want("proven before the container started", rollOut(db))
}
