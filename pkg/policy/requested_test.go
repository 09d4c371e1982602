// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
)

// sentWith returns a workload with the annotations of a restart patch.
func sentWith(t *testing.T, last policy.LastReload, always bool) *dependency.Workload {
	t.Helper()
	patch, err := (&policy.Policy{}).RestartPatch(&dependency.Workload{UID: "u", ResourceVersion: "1"}, &policy.Restart{Present: policy.Record{Hash: "h", Sources: map[string]string{"Secret/db": "*.d"}}, Last: last, Always: always})
	if err != nil {
		t.Fatal(err)
	}
	var sent struct {
		Metadata struct{ Annotations map[string]string }
		Spec     struct {
			Template struct {
				Metadata struct{ Annotations map[string]string }
			}
		}
	}
	if err := json.Unmarshal(patch, &sent); err != nil {
		t.Fatal(err)
	}
	return policy.AnnotatedWorkload(sent.Metadata.Annotations, sent.Spec.Template.Metadata.Annotations)
}

// Two requests within one second cause two restarts: the templates must differ, although the
// hash is the same.
func TestNewRequestedReload_TwoRequestsInOneSecondDiffer(t *testing.T) {
	at := time.Date(2026, 2, 3, 4, 5, 6, 0, time.FixedZone("", 3600))
	first := sentWith(t, policy.NewRequestedReload(nil, at, "ada", ""), true)
	second := sentWith(t, policy.NewRequestedReload(nil, at.Add(time.Millisecond), "ada", ""), true)
	if cmp.Equal(first.Marks, second.Marks) {
		t.Errorf("the templates of two requests are equal: %v", first.Marks)
	}
	if diff := cmp.Diff("2026-02-03T03:05:06Z", first.Marks.ReloadedAt); diff != "" {
		t.Errorf("time in UTC (-want +got):\n%s", diff)
	}
	// An automatic restart only changes the hash.
	if same := sentWith(t, policy.NewAutomaticReload(nil, at, 0, "Secret/db"), false); same.Marks.ReloadedAt != "" {
		t.Errorf("marks of the template = %v", same.Marks)
	}
}

// Every replica reads what a rollout records.
func TestRecordOf_WhatARolloutRecordsIsReadBack(t *testing.T) {
	automatic := metav1.NewMicroTime(time.Date(2026, 2, 3, 4, 5, 6, 789_012_000, time.UTC))
	want := policy.LastReload{Time: metav1.NewMicroTime(automatic.Add(time.Second)), Trigger: "Secret/db", RequestedBy: "ada", Reason: `why <not>`, Automatic: &automatic, Streak: 3}
	w := sentWith(t, want, true)
	got := policy.LastReloadOf(w)
	if got == nil {
		t.Fatal("last reload = nil")
	}
	if diff := cmp.Diff(want, *got); diff != "" {
		t.Errorf("last reload (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(policy.Record{Hash: "h", Sources: map[string]string{"Secret/db": "*.d"}}, policy.RecordOf(w)); diff != "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
	// If the annotations of the workload are removed, the template keeps the hash.
	w.Marks = dependency.Marks{TemplateHash: w.Marks.TemplateHash}
	if diff := cmp.Diff(policy.Record{Hash: "h"}, policy.RecordOf(w)); diff != "" {
		t.Errorf("record of only the template (-want +got):\n%s", diff)
	}
}

// TestRestart_WritesTheRecord checks that the record of a restart is as old as the restart, even if it
// is equal to the one before. Otherwise content that changes and changes back would restart the workload
// a second time, and no replica would check whether a pod was started in between.
func TestRestart_WritesTheRecord(t *testing.T) {
	request := func(x *world) {
		e := x.evaluate()
		x.patch(e.Policy.RestartPatch(e.Workload, &policy.Restart{
			Present: e.Present(), Last: policy.NewRequestedReload(policy.LastReloadOf(e.Workload), x.now, "ada", ""), Always: true,
		}))
	}
	thereAndBack := func(x *world) {
		x.set(secret("db", "password", "2"))
		x.tick(time.Minute)
		x.set(secret("db", "password", "1"))
		x.tick(time.Minute)
	}
	for name, tc := range map[string]struct {
		do   func(*world)
		want outcome
	}{
		"content changes and changes back, then a request": {func(x *world) { thereAndBack(x); request(x) }, nothing},
		"a request, then content changes and changes back": {func(x *world) { request(x); x.tick(time.Minute); thereAndBack(x) }, inspect("Secret/db")},
		"content changes, then changes back with a request while a watch is broken": {func(x *world) {
			x.set(secret("db", "password", "2"))
			x.broken(func() { x.set(secret("db", "password", "1")); request(x) })
		}, nothing},
	} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1"))
			x.adopt()
			x.tick(time.Hour)
			tc.do(x)
			d := x.decide()
			if diff := cmp.Diff(tc.want.Action, d.Action); diff != "" || d.State != tc.want.State {
				t.Errorf("got %+v, want %+v", outcomeOf(d), tc.want)
			}
		})
	}
}

// TestRestart_ByEvictionIsMadeOnce restarts a workload whose record is older than its pods, with the
// recorded content. Neither the template nor the record changes: only the annotation for the restart
// shows that the record is now newer.
func TestRestart_ByEvictionIsMadeOnce(t *testing.T) {
	x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1"))
	x.annotate(policy.StrategyAnnotation, "recreate")
	x.adopt()
	x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "app:2" })
	x.tick(time.Minute)
	for _, value := range []string{"2", "3", "4", "5", "1"} { // more than are remembered
		x.set(secret("db", "password", value))
	}
	x.tick(time.Minute)
	if d := x.act(); d.Action != policy.RollOut {
		t.Fatalf("content has changed and changed back: decision = %+v, want action RollOut", d)
	}
	x.tick(time.Minute)
	if d := x.decide(); d.Action != policy.Continue {
		t.Errorf("while pods are evicted: decision = %+v, want action Continue", d)
	}
}

// Flux reverts what managers with such names have set.
func TestFieldManager_IsNotTakenForKubectl(t *testing.T) {
	if strings.HasPrefix(policy.FieldManager, "kubectl") {
		t.Errorf("FieldManager = %q", policy.FieldManager)
	}
}
