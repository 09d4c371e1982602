// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package decide_test

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/ingest/ingesttest"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
)

// While a rollout runs, pods that it replaces are excused, and a stale pod of the newest template is not.
func TestDecide_ChangeDuringARollout(t *testing.T) {
	rolling := outcome{State: decide.RollingOut, Reason: "PodsUpdating"}
	begin := func(t *testing.T) *world {
		t.Helper()
		x := oneSecret(t)
		x.scale(3)
		x.tick(time.Minute)
		x.adopt()
		x.image("app:2")
		x.tick(time.Minute)
		return x
	}
	t.Run("before any pod is new", func(t *testing.T) {
		x := begin(t)
		password("2")(x)
		x.tick(time.Minute)
		x.want("all pods are replaced anyway", rolling)
		x.rollOut()
		x.wantRestarts("complete")
	})
	t.Run("after one pod is new", func(t *testing.T) {
		x := begin(t)
		x.rollOutSome(1)
		x.tick(time.Minute)
		password("2")(x)
		x.tick(time.Minute)
		x.want("the new pod is stale", rollOut(db))
		x.wantRestarts("the new pod is stale", db)
	})
	t.Run("the server restarts meanwhile", func(t *testing.T) {
		x := begin(t)
		x.away(func() { password("2")(x) })
		x.tick(time.Minute)
		if d := x.decide(); d.Action == decide.RollOut {
			t.Errorf("decision = %+v", d)
		}
		x.rollOut()
		x.wantRestarts("complete")
	})
	t.Run("the rollout fails", func(t *testing.T) {
		x := begin(t)
		x.rollOutSome(1)
		x.tick(time.Minute)
		failed(x)
		x.want("failed", outcome{State: decide.Failed, Reason: "ProgressDeadlineExceeded"})
		password("2")(x)
		x.tick(time.Minute)
		x.want("failed, and content changes", rollOut(db))
		x.act()
		failed(x)
		x.tick(time.Hour)
		x.want("the restart fails as well: one patch for each content", outcome{decide.Failed, "ProgressDeadlineExceeded", decide.None, db})
		x.restart()
		x.want("after another start", outcome{decide.Failed, "ProgressDeadlineExceeded", decide.None, db})
		password("3")(x)
		x.tick(time.Hour)
		x.want("other content", rollOut(db))
	})
	t.Run("an own rollout is overtaken by a change", func(t *testing.T) {
		x := begin(t)
		x.rollOut()
		x.restarts()
		password("2")(x)
		x.tick(time.Minute)
		x.act()
		x.tick(time.Minute)
		x.rollOutSome(2)
		x.tick(time.Minute)
		password("3")(x)
		x.wantRestarts("two pods have read 2", db)
	})
	t.Run("an own rollout has not begun yet", func(t *testing.T) {
		x := begin(t)
		x.rollOut()
		x.restarts()
		password("2")(x)
		x.tick(time.Minute)
		x.act()
		x.tick(time.Minute)
		password("3")(x)
		x.tick(time.Minute)
		if d := x.decide(); d.Action == decide.RollOut {
			t.Errorf("a second patch while no pod has read the second content: %+v", d)
		}
		x.rollOut()
		x.wantRestarts("complete")
	})
	t.Run("content and template of one release", func(t *testing.T) {
		for range 3 {
			x := oneSecret(t)
			x.adopt()
			password("2")(x)
			x.image("app:2") // in the same second
			x.want("the release", outcome{State: decide.RollingOut, Reason: "PodsUpdating"})
			x.rollOut()
			x.wantRestarts("the release is complete")
		}
	})
}

// Content that comes back before a pod has started with what was there in between gives the pod template of before, so that its pods stay.
func TestDecide_RevertedBeforeAPodHasTakenIt(t *testing.T) {
	begin := func(t *testing.T) (x *world, template string) {
		t.Helper()
		x = oneSecret(t)
		x.scale(3)
		x.tick(time.Minute)
		x.adopt()
		password("2")(x)
		x.wantRestarts("content that stays", db)
		x.tick(time.Minute)
		template = templateOf(x.deployment)
		password("3")(x)
		x.tick(time.Minute)
		x.act()
		if templateOf(x.deployment) == template {
			t.Fatal("no rollout has begun")
		}
		return x, template
	}
	wait := func(x *world) { // a pod of the new template, which cannot start
		p := x.start().DeepCopy()
		p.Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}
		x.pods[len(x.pods)-1] = p
		x.Set(p)
	}
	for name, tt := range map[string]struct {
		meanwhile func(*world)
		restored  bool
	}{
		"no pod is new":         {func(*world) {}, true},
		"a new pod waits":       {wait, true},
		"the rollout fails":     {both(wait, failed), true},
		"the image is new, too": {func(x *world) { x.image("app:2") }, false},
		"a new pod has started": {func(x *world) { x.rollOutSome(1) }, true}, // which is stale
	} {
		t.Run(name, func(t *testing.T) {
			x, template := begin(t)
			tt.meanwhile(x)
			x.tick(time.Minute)
			password("2")(x)
			x.tick(time.Minute)
			x.want("the content is back", rollOut(db))
			if x.act(); (templateOf(x.deployment) == template) != tt.restored {
				t.Errorf("the template is that of before = %v, want %v", !tt.restored, tt.restored)
			}
			x.edit(func(d *appsv1.Deployment) { d.Status.Conditions = nil })
			x.rollOut()
			x.wantRestarts("afterwards")
			if d := x.decide(); d.State != decide.InSync {
				t.Errorf("decision = %+v", d)
			}
		})
	}
	x := oneSecret(t)
	x.tick(time.Minute)
	x.adopt()
	before := x.deployment.DeepCopy()
	password("2")(x)
	x.wantRestarts("content that stays", db)
	x.tick(time.Minute)
	x.edit(func(d *appsv1.Deployment) { d.Annotations, d.Spec.Template = before.Annotations, before.Spec.Template })
	x.tick(time.Minute)
	if d := x.decide(); d.Action == decide.RollOut {
		t.Errorf("the rollback of an owner is taken back: %+v", d)
	}

	x, template := begin(t)
	x.rollOutSome(1)
	password("4")(x)
	x.tick(time.Minute)
	x.act()
	if templateOf(x.deployment) == template {
		t.Error("the template of other content is restored")
	}
}

// Pods that have to wait have read nothing: what changes meanwhile is what they start with.
func TestDecide_PodsThatWait(t *testing.T) {
	x := oneSecret(t)
	x.adopt()
	p := x.pods[0].DeepCopy()
	p.Status.ContainerStatuses[0].State.Running = nil
	x.pods[0] = p
	x.Set(p)
	x.tick(time.Minute)
	password("2")(x)
	x.wantRestarts("while it waits")
	x.crash0()
	x.wantRestarts("it has started")
}

// crash0 lets the first pod start.
func (x *world) crash0() {
	p := startedPod(x.pods[0].Name, &x.deployment.Spec.Template, x.now)
	p.ObjectMeta = *x.pods[0].ObjectMeta.DeepCopy()
	x.pods[0] = p
	x.Set(p)
}

// Without pods there is nothing to restart: new pods read the current content.
func TestDecide_NoReplicas(t *testing.T) {
	idle := outcome{State: decide.InSync, Reason: decide.ReasonNoPods}
	x := oneSecret(t)
	x.adopt()
	x.scale(0)
	x.want("scaled to zero", idle)
	password("2")(x)
	x.tick(time.Minute)
	x.act()
	x.want("a change", idle)
	x.tick(time.Minute)
	x.scale(2)
	x.wantRestarts("scaled up")
	password("3")(x)
	x.wantRestarts("a change then", db)
	x.annotate(policy.StrategyAnnotation, "recreate", record.RecreatingAnnotation, "none")
	x.scale(0)
	if d := x.decide(); d.Action != decide.Continue {
		t.Errorf("pods were being evicted: decision = %+v, want Continue", d)
	}
	x.annotate(policy.StrategyAnnotation, "annotation", record.RecreatingAnnotation, "none")
	x.remove(dependency.Secret, "db")
	if d := x.decide(); d.State != decide.Blocked || d.Stale {
		t.Errorf("something is missing: decision = %+v, want Blocked, and not stale", d)
	}
}

// A StatefulSet or DaemonSet whose pods a user replaces is patched once for each content. The message names what frees them, and a container that crashes and
// reads the content is no reason for another patch.
func TestDecide_OnDelete(t *testing.T) {
	x := oneSecret(t)
	x.tick(time.Minute)
	template := x.deployment.Spec.Template.DeepCopy()
	set := ingesttest.StatefulSet("sts", template.Spec)
	set.UID, set.Generation, set.Spec.UpdateStrategy.Type = "sts", 1, appsv1.OnDeleteStatefulSetStrategyType
	set.Status.ObservedGeneration = 1
	set.Status.CurrentRevision, set.Status.UpdateRevision = "r1", "r1"
	x.Set(set)
	pod := func(revision string) {
		p := startedPod("sts-0", &set.Spec.Template, x.now.Add(time.Second))
		p.UID = types.UID("sts-0-" + revision)
		p.Labels = map[string]string{appsv1.ControllerRevisionHashLabelKey: revision}
		p.OwnerReferences = []metav1.OwnerReference{controller("apps/v1", "StatefulSet", "sts", "sts")}
		x.Set(p)
	}
	pod("r1")
	act := func() decide.Decision {
		x.tick(time.Minute)
		var e *decide.Evaluation
		x.Read(func(known decide.Evaluator) {
			e = known.Evaluate(known.Graph.Workload(dependency.WorkloadKey{Kind: kind.StatefulSet, Namespace: namespace, Name: "sts"}))
		})
		d := e.Decide(x.now)
		var data []byte
		var err error
		switch d.Action {
		case decide.WriteRecord:
			data, err = record.Patch(e.Workload, d.Record)
		case decide.RollOut:
			data, err = e.Policy.RestartPatch(e.Workload, &record.Restart{Present: e.Present(), Last: record.NewAutomaticReload(nil, x.now, 0, d.Trigger), Always: e.Workload.Marks.TemplateHash == e.Hash})
		default:
			return d
		}
		if err != nil {
			t.Fatal(err)
		}
		set = set.DeepCopy()
		apply(t, set, data)
		if d.Action == decide.RollOut {
			set.Generation++
			set.Status.ObservedGeneration, set.Status.UpdateRevision, set.Status.UpdatedReplicas = set.Generation, "r"+string(rune('0'+set.Generation)), 0
		}
		x.Set(set)
		return d
	}
	if d := act(); d.Action != decide.WriteRecord {
		t.Fatalf("opting in: %+v", d)
	}
	for _, value := range []string{"2", "3"} {
		password(value)(x)
		if d := act(); d.Action != decide.RollOut {
			t.Fatalf("content %s: %+v", value, d)
		}
		for range 3 {
			d := act()
			if d.Action != decide.None || d.State != decide.Stale || d.Reason != decide.ReasonHeld || !strings.Contains(d.Message, "sts-0") || !strings.Contains(d.Message, "waiting for a user") {
				t.Fatalf("content %s, again: %+v", value, d)
			}
			if value == "3" {
				x.List() // another watch
			}
		}
	}
	pod(set.Status.UpdateRevision)
	set = set.DeepCopy()
	set.Status.UpdatedReplicas, set.Status.CurrentRevision = 1, set.Status.UpdateRevision
	x.Set(set)
	act()
	if d := act(); d.State != decide.InSync || d.Action != decide.None {
		t.Errorf("the user has deleted the pod: %+v", d)
	}
}
