// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package decide_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/dependency/dependencytest"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
)

const db = "Secret/db"

func password(value string) func(*world) {
	return func(x *world) { x.set(secret("db", "password", value)) }
}

func annotate(pairs ...string) func(*world) { return func(x *world) { x.annotate(pairs...) } }

var (
	optIn  = annotate(policy.ReloadAnnotation, "auto")
	optOut = annotate(policy.ReloadAnnotation, "off")
)

// oneSecret returns a world whose Deployment reads the password of a Secret, and has opted in.
func oneSecret(t *testing.T) *world {
	t.Helper()
	return newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1"))
}

// offWith is oneSecret with a Deployment that has not opted in, and with two pods.
func offWith(t *testing.T) *world {
	t.Helper()
	x := oneSecret(t)
	optOut(x)
	x.scale(2)
	x.tick(time.Minute)
	return x
}

func stale(reason string, a decide.Action) outcome { return outcome{decide.Stale, reason, a, ""} }

// A Secret rotates. A workload that has not opted in shows how many pods have not read it, and since when.
func TestDecide_StaleWithoutOptingIn(t *testing.T) {
	x := offWith(t)
	x.want("nothing has changed", nothing)
	x.tick(time.Hour)
	at := x.now
	password("2")(x)
	x.tick(time.Hour)
	password("3")(x)
	x.tick(time.Minute)
	x.crash()
	x.tick(time.Minute)
	d := x.want("rotated twice, one pod crashed", stale(decide.ReasonNotOptedIn, decide.None))
	if j := d.Pods; !d.Stale || j.Total != 2 || j.Stale != 1 || j.Current != 1 || !j.StaleSince.Equal(at) || !slices.Equal(j.StalePods, []int{1}) || !slices.Equal(j.Names, []string{x.pods[1].Name}) {
		t.Errorf("pods = %+v, want that one of two is stale since %v", j, at)
	}
	want := "1 of 2 pods runs with old content of Secret/db, which changed at 2026-03-01T13:01:00Z: " + x.pods[1].Name +
		". Automatic restarts are off. Create a Reload to restart the workload."
	if d.Message != want {
		t.Errorf("message = %s\nwant %s", d.Message, want)
	}
	x.request()
	x.rollOut()
	x.want("restarted on request", outcome{decide.InSync, decide.ReasonContentApplied, decide.None, record.TriggerRequest})
	if got := x.deployment.Annotations[record.AppliedSourcesAnnotation]; got != "" {
		t.Errorf("a Reload of a workload that has not opted in records %s", got)
	}
}

// Opting in restarts nothing, and does not say that stale pods are in sync. The next change restarts them.
func TestDecide_OptsInStale(t *testing.T) {
	for name, do := range map[string]func(*world){
		"the change was seen":                 func(*world) {},
		"it was made while no server ran":     func(x *world) { x.restart() },
		"the server is restarted":             func(x *world) { x.act(); x.restart() },
		"the other pod crashes, and reads it": func(x *world) { x.act(); x.tick(time.Minute); x.crash() },
	} {
		t.Run(name, func(t *testing.T) {
			x := offWith(t)
			password("2")(x)
			x.tick(time.Hour)
			optIn(x)
			do(x)
			if got := x.restarts(); len(got) > 0 {
				t.Errorf("opting in: restarts for %q", got)
			}
			if d := x.decide(); name == "the change was seen" && outcomeOf(d) != stale(decide.ReasonOptedInStale, decide.None) ||
				d.State != decide.Stale && d.State != decide.Unknown || d.Action != decide.None {
				t.Errorf("opted in: decision = %+v", d)
			}
			password("3")(x)
			x.wantRestarts("the next change", db)
		})
	}
}

// A stale pod that was adopted restarts nothing, but one that starts later and then misses a change does.
func TestDecide_OptsInStale_ContentComesBack(t *testing.T) {
	x := offWith(t)
	password("2")(x)
	x.tick(time.Hour)
	optIn(x)
	x.restarts()
	x.tick(time.Minute)
	x.rollOutSome(2)
	password("1")(x) // what the adopted pods read
	x.wantRestarts("back to what the pods read")
	password("2")(x)
	x.wantRestarts("and to what was adopted", db)
}

// A release is rolled back before it is complete: the pods never stopped, and run with the current content.
func TestDecide_RollbackOfARelease(t *testing.T) {
	for name, server := range map[string]func(*world){"while a server runs": func(*world) {}, "and the server is restarted": func(x *world) { x.restart() }} {
		t.Run(name, func(t *testing.T) {
			x := oneSecret(t)
			x.scale(3)
			x.tick(time.Minute)
			x.adopt()
			x.image("app:2")
			x.tick(time.Minute)
			x.rollOutSome(1)
			x.tick(time.Minute)
			x.image("")
			server(x)
			if got := x.restarts(); len(got) > 0 {
				t.Errorf("restarts for %q", got)
			}
			x.rollOut()
			x.wantRestarts("the rollback is complete")
			password("2")(x)
			x.wantRestarts("the next change", db)
		})
	}
}

// A release of content and template is rolled back, content and all, before it is complete: the pods that have read the other content are replaced by the
// rollback, and the others never stopped.
func TestDecide_RollbackOfAReleaseWithContent(t *testing.T) {
	x := oneSecret(t)
	x.scale(3)
	x.tick(time.Minute)
	x.adopt()
	password("2")(x)
	x.image("app:2")
	x.tick(2 * time.Second)
	x.rollOutSome(1)
	x.tick(time.Minute)
	x.act()
	password("1")(x)
	x.image("")
	x.tick(time.Minute)
	if got := x.restarts(); len(got) > 0 {
		t.Errorf("restarts for %q", got)
	}
	x.rollOut()
	x.wantRestarts("the rollback is complete")
}

// A workload that has been restarted on request, and whose content has changed since, opts in for the first time.
func TestDecide_OptsInAfterARequestedReload(t *testing.T) {
	x := offWith(t)
	x.request()
	x.tick(time.Minute)
	x.rollOut()
	x.tick(time.Hour)
	password("2")(x)
	x.tick(time.Hour)
	optIn(x)
	if got := x.restarts(); len(got) > 0 {
		t.Errorf("opting in: restarts for %q", got)
	}
	if d := x.decide(); d.State != decide.Stale || d.Reason != decide.ReasonOptedInStale {
		t.Errorf("decision = %+v, want Stale, OptedInStale", d)
	}
	password("3")(x)
	x.wantRestarts("the next change", db)
}

// Opting out removes what was recorded, and opting in again adopts what has changed meanwhile.
func TestDecide_OptsOutAndInAgain(t *testing.T) {
	x := oneSecret(t)
	x.adopt()
	optOut(x)
	x.want("opted out", outcome{State: decide.InSync, Reason: decide.ReasonContentApplied, Action: decide.Forget})
	x.act()
	if a := x.deployment.Annotations; a[record.ConfigHashAnnotation] != "" || a[record.AppliedSourcesAnnotation] != "" {
		t.Errorf("annotations = %v, want no record", a)
	}
	password("2")(x)
	x.tick(time.Minute)
	x.want("content changes", stale(decide.ReasonNotOptedIn, decide.None))
	optIn(x)
	if got := x.restarts(); len(got) > 0 {
		t.Errorf("opted in again: restarts for %q", got)
	}
	x.want("opted in again", stale(decide.ReasonOptedInStale, decide.None))
	password("3")(x)
	x.wantRestarts("the next change", db)
	optOut(x)
	x.act()
	x.tick(time.Minute)
	optIn(x)
	x.wantRestarts("out and in without a change")
}

// So does opting out by removing the annotation alone, although a list that is left is told as a mistake.
func TestDecide_OptsOutAndInAgainBesideAList(t *testing.T) {
	x := oneSecret(t)
	x.annotate(policy.SourcesAnnotation, "configmap/others")
	x.restart()
	x.adopt()
	x.annotate(policy.ReloadAnnotation, "")
	x.restart()
	x.want("opted out", outcome{State: decide.Blocked, Reason: decide.ReasonInvalidAnnotation, Action: decide.Forget})
	x.act()
	password("2")(x)
	x.tick(time.Minute)
	optIn(x)
	if got := x.restarts(); len(got) > 0 {
		t.Errorf("opted in again: restarts for %q", got)
	}
	x.want("opted in again", stale(decide.ReasonOptedInStale, decide.None))
}

// A record that was made with another key of the hash, or that another client has written, says nothing: what runs is adopted. Times still tell that pods are
// current.
func TestDecide_RecordsThatCannotBeCompared(t *testing.T) {
	for name, do := range map[string]func(*world){
		"the key of the hash is replaced": func(x *world) { x.replaceKey() },
		"the hash is invalid":             annotate(record.ConfigHashAnnotation, "garbage"),
		"the sources are invalid":         func(x *world) { x.annotate(record.AppliedSourcesAnnotation, "[1]"); x.restart() },
	} {
		t.Run(name, func(t *testing.T) {
			x := oneSecret(t)
			x.adopt()
			do(x)
			x.want("at once", recording)
			x.wantRestarts("later")
			password("2")(x)
			x.wantRestarts("the next change", db)
		})
	}
}

// Another client that removes the record undoes nothing: the server remembers it, and writes it again.
func TestDecide_RemovedRecordIsWrittenAgain(t *testing.T) {
	remove := annotate(record.ConfigHashAnnotation, "", record.AppliedSourcesAnnotation, "")
	x := oneSecret(t)
	x.adopt()
	remove(x)
	d := x.want("removed", outcome{State: decide.InSync, Reason: decide.ReasonRecordRemoved, Action: decide.WriteRecord})
	if !strings.Contains(d.Message, "another client removed configdep's annotations") {
		t.Errorf("message = %s", d.Message)
	}
	x.wantRestarts("later")
	password("2")(x)
	remove(x)
	x.wantRestarts("removed after a change", db)
	remove(x)
	x.restart() // no server remembers it
	x.wantRestarts("removed while no server ran")
	optOut(x)
	x.act()
	x.want("opted out", outcome{decide.InSync, decide.ReasonContentApplied, decide.None, db})
}

// Pods with a strategy that names them: the next write restores the names, the last restart and an approval with the record.
func TestDecide_RecordIsRemovedDuringAnEviction(t *testing.T) {
	x := oneSecret(t)
	x.annotate(policy.StrategyAnnotation, "recreate")
	x.adopt()
	last := (&record.LastReload{Time: *micro(epoch), Trigger: db, Streak: 3}).Text()
	x.annotate(record.RecreatingAnnotation, "a1b2c3d4", record.LastReloadAnnotation, last, record.ApprovedAnnotation, "{}")
	x.edit(func(d *appsv1.Deployment) {
		d.Annotations = map[string]string{policy.ReloadAnnotation: "auto", policy.StrategyAnnotation: "recreate"}
	})
	if got := record.LastReloadOf(x.workload()); got == nil || got.Streak != 3 {
		t.Errorf("last restart = %+v, want the one before the removal", got)
	}
	x.want("removed", outcome{decide.RollingOut, record.ReasonRecreating, decide.Continue, db})
	x.patch(record.Patch(x.workload(), record.Of(x.workload())))
	if got := x.deployment.Annotations; got[record.RecreatingAnnotation] != "a1b2c3d4" || got[record.LastReloadAnnotation] != last || got[record.ApprovedAnnotation] != "{}" {
		t.Errorf("annotations = %v, want the list of pods, the last restart and the approval", got)
	}
	x.edit(func(d *appsv1.Deployment) { d.Annotations = map[string]string{policy.ReloadAnnotation: "auto"} })
	if x.workload().Marks.Approval == "" {
		t.Error("the approval is forgotten")
	}
	optOut(x)
	if got := x.workload().Marks; got.Approval != "" {
		t.Errorf("marks = %+v of one that has opted out", got)
	}
}

// A DaemonSet that its controller has not seen yet wants no pods: that says nothing about those which are started next.
func TestDecide_RecordBeforeTheControllerHasSeenIt(t *testing.T) {
	for reason, proven := range map[string]bool{dependency.ReasonNotObserved: false, "PodsUpdating": true} {
		g := dependency.NewGraph()
		digester := dependency.NewDigester(make([]byte, 32))
		g.SetDigester(digester)
		g.SetSource(dependencytest.Source(digester, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db", UID: "s", ResourceVersion: "5"}}, dependency.SourceMarks{}))
		w := policy.Dialects(nil).ReadWorkload(&dependency.Object{
			Kind: kind.DaemonSet, Template: &corev1.PodTemplateSpec{Spec: podOf(envFrom(dependency.Secret, "db"))}, Traits: kind.Table(nil).Of(kind.DaemonSet).Traits,
			Meta:   &metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "web", Annotations: annotations{policy.ReloadAnnotation: "auto"}},
			Status: dependency.Status{Rollout: dependency.Rollout{Phase: dependency.RolloutRunning, Reason: reason}},
		})
		p := policy.Note(w, nil, policy.Defaults{Mode: policy.Off})
		g.SetWorkload(w, p.Patterns())
		d := decide.Evaluator{Graph: g}.Evaluate(w).Decide(epoch)
		if entry, known := d.Record.Sources[db]; !known || entry.Adopted.IsZero() != proven {
			t.Errorf("%s: the record is %+v", reason, d.Record)
		}
	}
}

// Without the first record no change restarts a workload, so that what refuses it is told unless the pods have a worse state. Views look for that again.
func TestDecide_FirstRecordIsRefused(t *testing.T) {
	x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1"))
	x.tick(time.Hour)
	x.stop(x.pods[0].Name)
	x.start()
	x.tick(time.Hour)
	if d := x.want("due", recording); !d.Timed || d.Pods.Local || d.ShowAgain(x.now).IsZero() {
		t.Errorf("decision = %+v, want it to be timed", d)
	}
	x.graph().SetRefusal(x.workload().WorkloadKey, &dependency.Refusal{Hash: x.evaluate().Hash, Why: "quota", Until: x.now.Add(time.Minute)})
	x.want("refused", outcome{State: decide.Blocked, Reason: decide.ReasonRefused, Action: decide.WriteRecord})
	x.image("app:2")
	x.want("a rollout", outcome{State: decide.RollingOut, Reason: "PodsUpdating", Action: decide.WriteRecord})
}
