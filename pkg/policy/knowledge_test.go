// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
)

// A record does not reflect what is read after it was decided on, even if that was written earlier:
// watches deliver events in any order.
func TestDecide_WhatIsReadAfterTheDecision(t *testing.T) {
	x := newWorld(t, podOf(env(dependency.Secret, "db", "password"), optionalEnv(dependency.Secret, "late", "key")), secret("db", "password", "1"))
	x.adopt()
	decided := x.graph().Order()
	x.set(secret("db", "password", "2"))
	x.set(secret("db", "password", "1"))
	x.annotate(policy.VerifiedAnnotation, "now") // the record is written again
	w := *x.workload()
	w.RecordedAt = dependency.Moment{Version: x.Version, Order: x.graph().Order() + 1}
	e := x.known().Evaluate(&w)
	if diff := cmp.Diff(inspect("Secret/db"), outcomeOf(e.Decide(policy.Observed{Now: x.now, Decided: decided}))); diff != "" {
		t.Errorf("decided on before (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(nothing, outcomeOf(e.Decide(policy.Observed{Now: x.now, Decided: x.graph().Order()}))); diff != "" {
		t.Errorf("decided on after (-want +got):\n%s", diff)
	}
}

// A source that began to count while the record was being written, by whichever process.
func TestDecide_SourceThatCountsAgainWhileTheRecordIsWritten(t *testing.T) {
	x := newWorld(t, podOf(optionalEnv(dependency.Secret, "db", "password"), env(dependency.Secret, "other", "key")),
		annotated(secret("db", "password", "1"), policy.IgnoreAnnotation, "true"), secret("other", "key", "1"))
	x.adopt()
	decided := x.graph().Order()
	x.remove(dependency.Secret, "db")
	x.set(secret("db", "password", "2"))
	w := *x.workload()
	w.RecordedAt = dependency.Moment{Version: x.Version + 1, Order: x.graph().Order() + 1}
	e := x.known().Evaluate(&w)
	x.tick(time.Minute)
	for name, order := range map[string]uint64{"this process": decided, "another": 0} {
		if diff := cmp.Diff(rollOut("Secret/db"), outcomeOf(e.Decide(policy.Observed{Now: x.now, Decided: order}))); diff != "" {
			t.Errorf("%s decided on the record (-want +got):\n%s", name, diff)
		}
	}
}

// In the middle of a rollout, an owner rolls back to a template whose pods may never have stopped,
// and the record that comes with it says that they have read other than the current content.
func TestDecide_RecordThatComesBackWithOlderPods(t *testing.T) {
	for name, record := range map[string]func(*world) (hash, sources string){
		"mixed": func(x *world) (hash, sources string) {
			x.patch(x.evaluate().MixedPatch([]string{"Secret/db"}))
			hash, sources = x.workload().Record()
			x.tick(time.Minute)
			x.deployment.Generation = 2 // the rollout is under way
			x.act()
			return hash, sources
		},
		"of other content": func(x *world) (hash, sources string) {
			hash, sources = x.workload().Record()
			x.away(func() { x.set(secret("db", "password", "2")) })
			x.tick(time.Minute)
			x.deployment.Generation = 2 // the rollout is under way
			x.act()
			return hash, sources
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1"))
			x.adopt()
			hash, sources := record(x)
			x.edit(func(d *appsv1.Deployment) {
				d.Spec.Template.Spec.Containers[0].Image, d.Generation = "app:2", 3
			})
			x.tick(time.Minute)
			x.edit(func(d *appsv1.Deployment) {
				d.Spec.Template.Spec.Containers[0].Image, d.Spec.Template.Annotations = "", nil
				d.Generation, d.Status.ObservedGeneration = 4, 4
				d.Annotations = maps.Clone(d.Annotations)
				d.Annotations[policy.ConfigHashAnnotation], d.Annotations[policy.AppliedSourcesAnnotation] = hash, sources
			})
			if diff := cmp.Diff(inspect("Secret/db").Action, x.decide().Action); diff != "" {
				t.Fatalf("decision = %+v (-want +got):\n%s", x.decide(), diff)
			}
			x.act()
			if d := x.decide(); d.State != policy.InSync || d.Action != policy.None {
				t.Errorf("once looked up: decision = %+v, want state InSync and no action", d)
			}
		})
	}
}

// TestDecide_RecordWrittenAgain: a record applies to pods from its last write, even if another client had removed
// it and it was the same before those pods. Its writer knows that even if it did not see the removal.
func TestDecide_RecordWrittenAgain(t *testing.T) {
	removed := func(x *world) {
		x.annotate(policy.ConfigHashAnnotation, "", policy.AppliedSourcesAnnotation, "")
		if diff := cmp.Diff(restored, outcomeOf(x.act())); diff != "" {
			x.t.Fatalf("decision (-want +got):\n%s", diff)
		}
	}
	for name, tt := range map[string]struct {
		do      func(*world)
		written bool // this replica knows that it wrote the record
		want    outcome
	}{
		"not":                          {func(*world) {}, false, rollOut("Secret/db")},
		"unseen, by us":                {func(*world) {}, true, inspect("Secret/db")},
		"removed, and written by us":   {removed, true, inspect("Secret/db")},
		"removed, and by another":      {removed, false, inspect("Secret/db")},
		"removed, and written since":   {both(removed, func(x *world) { x.annotate(policy.SettleAnnotation, "1s") }), false, inspect("Secret/db")},
		"removed again":                {both(removed, func(x *world) { x.annotate(policy.ConfigHashAnnotation, "") }), false, inspect("Secret/db")},
		"removed, and not written yet": {func(x *world) { x.annotate(policy.ConfigHashAnnotation, "", policy.AppliedSourcesAnnotation, "") }, false, rollOut("Secret/db")},
	} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, podOf(optionalEnv(dependency.Secret, "db", "password")), secret("db", "password", "1"))
			x.adopt()
			x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "app:2" })
			tt.do(x)
			o := policy.Observed{Decided: x.graph().Order()}
			if tt.written {
				o.Written = x.Version
			}
			x.remove(dependency.Secret, "db")
			x.set(secret("db", "password", "1"))
			x.tick(time.Minute)
			o.Now = x.now
			if diff := cmp.Diff(tt.want, outcomeOf(x.evaluate().Decide(o))); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}

// TestDecide_BareHashOfAnEarlierTemplate: if the owner changes the template and removes the record, the hash
// that is left on the template is of the content that earlier pods have read. The current pods may have been
// started while content was different.
func TestDecide_BareHashOfAnEarlierTemplate(t *testing.T) {
	for _, several := range []bool{false, true} {
		x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1"))
		if several {
			x.SeparateCounters()
		}
		x.adopt()
		hash := x.evaluate().Hash
		x.edit(func(d *appsv1.Deployment) {
			d.Spec.Template.Annotations = map[string]string{policy.ConfigHashAnnotation: hash}
		})
		x.set(secret("db", "password", "2"))
		x.edit(func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.Containers[0].Image = "app:2"
			d.Annotations = map[string]string{policy.ReloadAnnotation: "auto"}
		})
		x.set(secret("db", "password", "1"))
		x.tick(time.Minute)
		if diff := cmp.Diff(inspect("Secret/db"), outcomeOf(x.decide())); diff != "" {
			t.Errorf("several counters: %v: decision (-want +got):\n%s", several, diff)
		}
	}
}

// A replica that was disconnected finds other content in a list, with a version that is newer than the leader's record,
// because metadata was written after it. The record contains the change, so the change was not later than the record;
// unless the replica had read beyond the record, or has seen more changes.
func TestDecide_ListShowsWhatTheRecordTells(t *testing.T) {
	set := func(value string) func(*world) {
		return func(x *world) { x.set(secret("db", "password", value)) }
	}
	again := func(x *world) { x.set(annotated(secret("db", "password", "2"), "a", "b")) }
	recordOf := func(value string) func(*world) {
		return func(x *world) {
			there := newWorld(x.t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", value))
			x.patch(policy.BaselinePatch(x.workload(), there.evaluate().Present()))
		}
	}
	cutOff := func(fs ...func(*world)) func(*world) {
		return func(x *world) { x.broken(func() { both(fs...)(x) }) }
	}
	for name, tt := range map[string]struct {
		do   func(*world)
		want outcome
	}{
		"disconnected before the record":         {cutOff(set("2"), recordOf("2"), again), nothing},
		"disconnected after another change":      {both(set("3"), cutOff(recordOf("2"), set("2"), again)), nothing},
		"content is recorded, and changes twice": {both(recordOf("2"), set("3"), cutOff(set("2"), again)), inspect("Secret/db")},
		"the record is of a lagging leader":      {both(recordOf("2"), cutOff(set("2"), again)), inspect("Secret/db")},
		"with several counters":                  {both(func(x *world) { x.SeparateCounters() }, cutOff(set("2"), recordOf("2"), again)), nothing},
	} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1"))
			x.adopt()
			tt.do(x)
			x.tick(time.Minute)
			if diff := cmp.Diff(tt.want, outcomeOf(x.decide())); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}

// The same applies to a source that a list no longer contains, by name and by glob.
func TestDecide_ListLacksWhatTheRecordTells(t *testing.T) {
	for name, sources := range map[string]string{"by name": "secret/more", "of a glob": "secret/m*"} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1"), secret("more", "k", "1"))
			x.annotate(policy.SourcesAnnotation, sources)
			x.adopt()
			x.broken(func() {
				x.remove(dependency.Secret, "more")
				x.restart()
				x.patch(policy.BaselinePatch(x.workload(), x.evaluate().Present()))
				x.Version++ // another object is written
			})
			x.tick(time.Minute)
			if diff := cmp.Diff(nothing, outcomeOf(x.decide())); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
			x.set(secret("more", "k", "1"))
			x.tick(time.Minute)
			if d := x.decide(); d.Action != policy.RollOut {
				t.Errorf("the Secret is created again: action = %s", d.Action)
			}
		})
	}
}

// looked returns the decision after an inspection that found a container running since a time.
func (x *world) looked(since time.Time) policy.Decision {
	x.t.Helper()
	d := x.decide()
	if d.Action != policy.Inspect {
		return d
	}
	pod := &corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
		Name: "app", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(since)}},
	}}}}
	found, err := policy.InspectPods(d.Excursions, func(look func(*corev1.Pod)) error { look(pod); return nil })
	if err != nil {
		x.t.Fatal(err)
	}
	found.Of, found.StartedBy = d.Excursions, x.workload().StartedBy
	return x.evaluate().Decide(policy.Observed{Now: x.now, StaleSince: x.staleSince, Inspected: found})
}

// A record that came back with its template, or was written by a lagging replica, differs from the content at that time.
// If the content changes to what the record says, older pods have read other content.
func TestDecide_RecordThatComesTrue(t *testing.T) {
	for name, before := range map[string]func(*world){
		"an undo": func(x *world) {
			template, annotations := x.deployment.Spec.Template.DeepCopy(), maps.Clone(x.deployment.Annotations)
			x.set(secret("db", "password", "2"))
			x.tick(time.Minute)
			if d := x.act(); d.Action != policy.RollOut {
				x.t.Fatalf("decision = %+v, want action RollOut", d)
			}
			x.tick(time.Hour)
			x.edit(func(d *appsv1.Deployment) { d.Spec.Template, d.Annotations = *template, annotations })
		},
		"a lagging replica": func(x *world) {
			present := x.evaluate().Present()
			x.edit(func(d *appsv1.Deployment) { d.Spec.Paused = true })
			x.set(secret("db", "password", "2"))
			x.patch(policy.BaselinePatch(x.workload(), policy.Record{Hash: present.Hash + "0", Sources: present.Sources})) // it is written once more
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1"))
			x.adopt()
			before(x)
			x.tick(10 * time.Minute)
			pod := x.now // it reads 2
			x.tick(10 * time.Minute)
			x.set(secret("db", "password", "1"))
			x.tick(10 * time.Minute)
			if d := x.looked(pod); d.Action != policy.WriteMixed {
				t.Errorf("decision = %+v, want action WriteMixed", d)
			}
			if d := x.looked(x.now); d.Action != policy.WriteVerified {
				t.Errorf("a newer pod: decision = %+v, want action WriteVerified", d)
			}
		})
	}
}
