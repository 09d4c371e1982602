// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
)

// TestDecide_VerifyIsAskedOnlyWhenTheAnswerCounts: verifying needs API calls.
func TestDecide_VerifyIsAskedOnlyWhenTheAnswerCounts(t *testing.T) {
	image := func(x *world) {
		x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "app:2" })
	}
	for name, tc := range map[string]struct {
		do   func(*world)
		want bool
	}{
		"content, a second later the template":      {func(x *world) { x.set(secret("db", "password", "2")); x.tick(time.Second); image(x) }, true},
		"in the same second: the pods may be older": {func(x *world) { x.set(secret("db", "password", "2")); x.tick(999 * time.Millisecond); image(x) }, false},
		"the template, then content":                {func(x *world) { image(x); x.tick(time.Second); x.set(secret("db", "password", "2")) }, false},
		"content only":                              {func(x *world) { x.set(secret("db", "password", "2")) }, false},
		"a source is created, then the template":    {func(x *world) { x.set(secret("extra", "a", "1")); x.tick(time.Second); image(x) }, true},
		"a source is deleted, which has no date":    {func(x *world) { x.remove(dependency.Secret, "gone"); x.tick(time.Second); image(x) }, false},
		"a key is removed, which has no date":       {func(x *world) { x.set(configMap("settings", "a", "1")); x.tick(time.Second); image(x) }, false},
		"a source changes and another is deleted": {func(x *world) {
			x.set(secret("db", "password", "2"))
			x.remove(dependency.Secret, "gone")
			x.tick(time.Second)
			image(x)
		}, false},
		"a source is deleted and created with other content": {func(x *world) {
			x.remove(dependency.Secret, "gone")
			x.tick(time.Second)
			x.set(secret("gone", "a", "2"))
			x.tick(time.Second)
			image(x)
		}, true},
		"a source of a glob, whose deletions have no date": {func(x *world) { x.set(secret("feature-1", "a", "2")); x.tick(time.Second); image(x) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, podOf(
				env(dependency.Secret, "db", "password"), envFrom(dependency.ConfigMap, "settings"),
				optionalEnvFrom(dependency.Secret, "extra"), optionalEnvFrom(dependency.Secret, "gone"),
			), secret("db", "password", "1"), configMap("settings", "a", "1", "b", "1"), secret("gone", "a", "1"), secret("feature-1", "a", "1"))
			x.annotate(policy.SourcesAnnotation, "secret/feature-*")
			x.adopt()
			x.away(func() { tc.do(x) })
			x.tick(time.Minute)
			d := x.decide()
			if !d.Stale || (d.Action == policy.Verify) != tc.want || !tc.want && d.Action != policy.RollOut {
				t.Errorf("got %+v", d)
			}
		})
	}
}

// With several revision counters, the order in which content and template were read is meaningless.
func TestDecide_VerifyIsAskedWithSeveralCounters(t *testing.T) {
	x := typical(t)
	x.SeparateCounters()
	x.adopt()
	x.set(secret("db", "password", "2"))
	x.tick(time.Second)
	x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "app:2" })
	x.tick(time.Minute)
	if diff := cmp.Diff(outcome{policy.Pending, "Verifying", policy.Verify, "Secret/db"}, outcomeOf(x.decide())); diff != "" {
		t.Errorf("decision (-want +got):\n%s", diff)
	}
}

// An owner that replaces the whole workload removes the record. With several revision counters, times
// tell whether its pods have read a change, unless the change is the removal of a key.
func TestDecide_VerifyIsAskedOfWhatIsNotRecorded(t *testing.T) {
	for name, tt := range map[string]struct {
		content []string
		want    outcome
	}{
		"a key was changed": {[]string{"password", "2", "user", "1"}, outcome{policy.Pending, "Verifying", policy.Verify, "Secret/db"}},
		"a key was removed": {[]string{"password", "1"}, rollOut("Secret/db")},
	} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, podOf(envFrom(dependency.Secret, "db")), secret("db", "password", "1", "user", "1"))
			x.SeparateCounters()
			x.adopt()
			x.set(secret("db", tt.content...))
			x.tick(time.Minute)
			x.edit(func(d *appsv1.Deployment) {
				d.Annotations = map[string]string{policy.ReloadAnnotation: "auto"}
				d.Spec.Template.Spec.Containers[0].Image = "app:2"
			})
			x.tick(time.Minute)
			if diff := cmp.Diff(tt.want, outcomeOf(x.decide())); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}

// A template that existed when this process started is older than all changes that the process sees,
// whatever clocks say.
func TestDecide_VerifyIsNotAskedOfWhatCameAfterTheFirstLists(t *testing.T) {
	x := typical(t)
	x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "app:2" })
	x.adopt()
	x.restart()
	x.tick(-time.Hour) // the clock of the API server was ahead
	x.set(secret("db", "password", "2"))
	x.tick(time.Minute)
	if diff := cmp.Diff(rollOut("Secret/db"), outcomeOf(x.decide())); diff != "" {
		t.Errorf("decision (-want +got):\n%s", diff)
	}
}

// A list shows neither when the template changed since the watch was interrupted, nor that it changed and changed back.
// But what had been read before was written before.
func TestDecide_VerifyIsAskedOfATemplateThatWasListed(t *testing.T) {
	image := func(x *world, image string) {
		x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = image })
	}
	content := func(x *world) { x.set(secret("db", "password", "2")); x.tick(time.Second) }
	other := func(x *world) { x.set(configMap("unrelated", "a", "1")) }
	for name, tt := range map[string]struct {
		before, meanwhile func(*world)
		want              policy.Action
	}{
		"the template changed too":                             {other, both(other, content, func(x *world) { image(x, "app:2") }), policy.Verify},
		"the template changed and changed back":                {other, both(other, content, func(x *world) { image(x, "app:2"); x.tick(time.Second); image(x, "") }), policy.Verify},
		"the template did not change":                          {content, func(*world) {}, policy.RollOut},
		"only the content changed":                             {other, content, policy.RollOut},
		"the content changed before":                           {content, func(x *world) { image(x, "app:2") }, policy.WriteBaseline},
		"the content changed before, and another source later": {both(content, other), func(x *world) { image(x, "app:2") }, policy.WriteBaseline},
	} {
		t.Run(name, func(t *testing.T) {
			x := typical(t)
			x.adopt()
			tt.before(x)
			x.broken(func() { tt.meanwhile(x) })
			x.tick(time.Minute)
			if d := x.decide(); d.Action != tt.want {
				t.Errorf("%+v", d)
			}
		})
	}
}

func TestDecide_WhatVerifyFinds(t *testing.T) {
	both := func(t *testing.T) *world {
		t.Helper()
		x := typical(t)
		x.adopt()
		x.away(func() {
			x.set(secret("db", "password", "2"))
			x.tick(time.Second)
			x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "app:2" })
		})
		return x
	}
	t.Run("the pods are newer: they have read the content", func(t *testing.T) {
		x := both(t)
		newer := true
		x.verified = &newer
		if diff := cmp.Diff(outcome{policy.InSync, "ContentApplied", policy.WriteVerified, ""}, outcomeOf(x.act())); diff != "" {
			t.Errorf("decision (-want +got):\n%s", diff)
		}
		x.verified = nil
		if diff := cmp.Diff(nothing, outcomeOf(x.act())); diff != "" {
			t.Errorf("the next decision (-want +got):\n%s", diff)
		}
	})
	t.Run("the pods are newer than an earlier write: verify again", func(t *testing.T) {
		x := both(t)
		newer, before := true, x.decide()
		x.away(func() {
			x.set(secret("db", "password", "3"))
			x.tick(time.Second)
			x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "app:3" })
		})
		if d := x.evaluate().Decide(policy.Observed{Now: x.now, Verified: &policy.Verification{newer, before.WrittenAt, x.workload().StartedBy}}); d.Action != policy.Verify {
			t.Errorf("decision = %+v, want action Verify", d)
		}
	})
	t.Run("the pods were newer, and have another template now: verify again", func(t *testing.T) {
		x := both(t)
		verified := &policy.Verification{true, x.decide().WrittenAt, x.workload().StartedBy}
		x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "app:3" })
		x.restart()
		if d := x.evaluate().Decide(policy.Observed{Now: x.now, Verified: verified}); d.Action != policy.Verify {
			t.Errorf("decision = %+v, want action Verify", d)
		}
	})
	t.Run("the pods are older, or not known to be newer: restart", func(t *testing.T) {
		x := both(t)
		newer := false
		x.verified = &newer
		if diff := cmp.Diff(rollOut("Secret/db"), outcomeOf(x.act())); diff != "" {
			t.Errorf("decision (-want +got):\n%s", diff)
		}
		x.verified = nil
		if d := x.act(); d.State != policy.InSync || d.Action != policy.None {
			t.Errorf("the next decision = %+v, want state InSync and no action", d)
		}
	})
	t.Run("the Deployment is paused: verify when it is resumed", func(t *testing.T) {
		x := both(t)
		x.edit(func(d *appsv1.Deployment) { d.Spec.Paused = true })
		if d := x.decide(); d.State != policy.Blocked || d.Reason != "Paused" {
			t.Errorf("decision = %+v, want state Blocked and reason Paused", d)
		}
	})
}

// TestDecide_ChangeBeforeTheFirstRecordIsNotLost: content changes after a workload was created, before
// anything could be recorded.
func TestDecide_ChangeBeforeTheFirstRecordIsNotLost(t *testing.T) {
	for name, tc := range map[string]struct {
		do   func(*world)
		want outcome
	}{
		"nothing happens":               {func(*world) {}, adoption},
		"content changes":               {func(x *world) { x.set(secret("db", "password", "2")) }, rollOut("Secret/db")},
		"an optional source is created": {func(x *world) { x.set(secret("extra", "a", "1")) }, rollOut("Secret/extra")},
		"a source of a glob changes":    {func(x *world) { x.set(secret("feature-1", "a", "2")) }, rollOut("Secret/feature-*")},
		"a required source is created: the pods have waited for it": {func(x *world) {
			x.set(configMap("late", "a", "1"))
		}, adoption},
		"the required source is created without a key, which is added later": {func(x *world) {
			x.set(configMap("late", "b", "1"))
			x.set(secret("extra", "a", "1"))
			x.set(configMap("late", "a", "1", "b", "1"))
		}, adoption},
		"the required source is created, and changes": {func(x *world) {
			x.set(configMap("late", "a", "1"))
			x.set(configMap("late", "a", "2"))
		}, rollOut("ConfigMap/late")},
		"a required source is deleted and created: the pods are already running": {func(x *world) {
			x.remove(dependency.Secret, "db")
			x.set(secret("db", "password", "2"))
		}, rollOut("Secret/db")},
		"a source of a glob is deleted": {func(x *world) { x.remove(dependency.Secret, "feature-1") }, rollOut("Secret/feature-*")},
		"a source is created that another container has waited for, but not the first": {func(x *world) {
			x.set(secret("db", "password", "2"))
			x.set(configMap("late", "a", "1"))
		}, rollOut("Secret/db")},
		"content changes, and then the workload opts in": {func(x *world) {
			x.annotate(policy.ReloadAnnotation, "off")
			x.set(secret("db", "password", "2"))
			x.annotate(policy.ReloadAnnotation, "auto")
		}, adoption},
		"content changes, and then the namespace opts the workload in": {func(x *world) {
			x.annotate(policy.ReloadAnnotation, "")
			x.set(secret("db", "password", "2"))
			x.namespaceAnnotations(map[string]string{policy.ReloadAnnotation: "auto"})
		}, adoption},
		"a source changes and is deleted, the workload opts in, and the source returns": {func(x *world) {
			x.annotate(policy.ReloadAnnotation, "off")
			x.set(secret("db", "password", "2"))
			x.remove(dependency.Secret, "db")
			x.annotate(policy.ReloadAnnotation, "auto")
			x.set(secret("db", "password", "2"))
		}, rollOut("Secret/db")},
		"a key changes and is removed, the workload opts in, and the key returns": {func(x *world) {
			x.annotate(policy.ReloadAnnotation, "off")
			x.set(secret("db", "password", "2"))
			x.set(secret("db", "user", "1"))
			x.annotate(policy.ReloadAnnotation, "auto")
			x.set(secret("db", "password", "2", "user", "1"))
		}, rollOut("Secret/db")},
		"the pods have read a source, it is deleted, the workload opts in, and the source returns": {func(x *world) {
			x.annotate(policy.ReloadAnnotation, "off")
			x.set(secret("db", "password", "2"))
			x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "app:3" })
			x.remove(dependency.Secret, "db")
			x.annotate(policy.ReloadAnnotation, "auto")
			x.set(secret("db", "password", "2"))
		}, adoption},
		"a source changes, is deleted and returns, and then the workload opts in": {func(x *world) {
			x.annotate(policy.ReloadAnnotation, "off")
			x.set(secret("db", "password", "2"))
			x.remove(dependency.Secret, "db")
			x.set(secret("db", "password", "2"))
			x.annotate(policy.ReloadAnnotation, "auto")
		}, adoption},
		"an optional source is created, and then the required one: the pods have read both": {func(x *world) {
			x.set(secret("extra", "a", "1"))
			x.set(secret("db", "password", "2"))
			x.set(configMap("late", "a", "1"))
		}, adoption},
		"a required source is created, and then an optional one": {func(x *world) {
			x.set(configMap("late", "a", "1"))
			x.set(secret("extra", "a", "1"))
		}, rollOut("Secret/extra")},
		"metadata changes": {func(x *world) { x.set(annotated(secret("db", "password", "1"), "a", "b")) }, adoption},
		"content changes, and then the template": {func(x *world) {
			x.set(secret("db", "password", "2"))
			x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "app:3" })
		}, adoption},
		"the process restarts: adoption restarts nothing": {func(x *world) {
			x.set(secret("db", "password", "2"))
			x.restart()
		}, adoption},
	} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, podOf(env(dependency.Secret, "db", "password"), optionalEnvFrom(dependency.Secret, "extra"), envFrom(dependency.ConfigMap, "settings")),
				secret("db", "password", "1"), secret("feature-1", "a", "1"), configMap("settings", "a", "1", "b", "1"))
			x.annotate(policy.SourcesAnnotation, "secret/feature-*")
			x.edit(func(d *appsv1.Deployment) { // its pods are created while this process watches
				d.Spec.Template.Spec.Containers[0].Image = "app:2"
				if strings.Contains(name, "required source is created") || strings.Contains(name, "then the required one") {
					env(dependency.ConfigMap, "late", "a")(&d.Spec.Template.Spec)
				}
				if strings.Contains(name, "another container") {
					other := podOf(env(dependency.ConfigMap, "late", "a")).Containers[0]
					other.Name = "other"
					d.Spec.Template.Spec.Containers = append(d.Spec.Template.Spec.Containers, other)
				}
			})
			tc.do(x)
			x.tick(time.Minute)
			if diff := cmp.Diff(tc.want, outcomeOf(x.act())); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
			if d := x.act(); d.State != policy.InSync || d.Action != policy.None {
				t.Errorf("the next decision = %+v, want state InSync and no action", d)
			}
		})
	}
}

// TestDecide_PodsThatHadToWaitHaveReadWhatChangedMeanwhile, even if there is a record for earlier
// pods.
func TestDecide_PodsThatHadToWaitHaveReadWhatChangedMeanwhile(t *testing.T) {
	x := newWorld(t, podOf(env(dependency.Secret, "db", "password"), env(dependency.ConfigMap, "settings", "a")),
		secret("db", "password", "1"), configMap("settings", "a", "1"))
	x.adopt()
	x.remove(dependency.ConfigMap, "settings")
	x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "app:2" })
	x.set(secret("db", "password", "2"))
	if d := x.decide(); d.State != policy.Blocked {
		t.Errorf("while the pods wait: decision = %+v, want state Blocked", d)
	}
	x.set(configMap("settings", "a", "2"))
	x.tick(time.Minute)
	if diff := cmp.Diff(baseline, outcomeOf(x.act())); diff != "" {
		t.Errorf("decision (-want +got):\n%s", diff)
	}
}

// TestDecide_OwnRolloutOvertakenByAChange: content changes after the decision and before the
// patch. The pods that the patch creates read the new content.
func TestDecide_OwnRolloutOvertakenByAChange(t *testing.T) {
	x := typical(t)
	x.adopt()
	x.set(secret("db", "password", "2"))
	x.tick(time.Minute)
	e := x.evaluate()
	data, err := e.Policy.RestartPatch(e.Workload, &policy.Restart{Present: e.Present(), Last: policy.NewAutomaticReload(nil, x.now, e.Policy.MinInterval, "Secret/db")})
	x.set(secret("db", "password", "3"))
	x.patch(data, err)
	x.tick(time.Minute)
	if diff := cmp.Diff(outcome{policy.InSync, "ContentApplied", policy.WriteBaseline, "Secret/db"}, outcomeOf(x.act())); diff != "" {
		t.Errorf("decision (-want +got):\n%s", diff)
	}
	x.set(secret("db", "password", "2")) // the content of the rollout, which no pod has read
	x.tick(time.Minute)
	if diff := cmp.Diff(rollOut("Secret/db"), outcomeOf(x.act())); diff != "" {
		t.Errorf("decision (-want +got):\n%s", diff)
	}
}

// TestDecide_ChangeOfWhatTheTemplateHasBegunToRead, before it could be recorded.
func TestDecide_ChangeOfWhatTheTemplateHasBegunToRead(t *testing.T) {
	for name, tc := range map[string]struct {
		do   func(*world)
		want outcome
	}{
		"nothing":            {func(*world) {}, baseline},
		"the source changes": {func(x *world) { x.set(configMap("more", "a", "2", "b", "1")) }, rollOut("ConfigMap/more")},
		"another key changes of a source that was read in part": {func(x *world) {
			x.set(secret("db", "password", "1", "user", "2"))
		}, rollOut("Secret/db")},
		"a key changes that the template does not read": {func(x *world) {
			x.edit(func(d *appsv1.Deployment) {
				d.Spec.Template.Spec = podOf(env(dependency.Secret, "db", "user"), optionalEnv(dependency.Secret, "extra", "a"))
			})
			x.set(secret("db", "password", "2", "user", "1"))
			x.set(secret("extra", "b", "1"))
		}, baseline},
		"the source had changed before": {func(x *world) {
			x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "app:3" })
		}, baseline},
		"the policy makes a source count that changed long before": {func(x *world) {
			x.act()
			x.annotate(policy.SourcesAnnotation, "configmap/other")
		}, baseline},
		"no process saw which came first": {func(x *world) {
			x.set(configMap("more", "a", "2", "b", "1"))
			x.restart()
		}, baseline},
	} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, podOf(env(dependency.Secret, "db", "password")),
				secret("db", "password", "1", "user", "1"), configMap("more", "a", "1", "b", "1"), configMap("other", "a", "1"))
			x.act()
			x.set(configMap("more", "a", "1", "b", "2"))
			x.edit(func(d *appsv1.Deployment) {
				d.Spec.Template.Spec = podOf(envFrom(dependency.Secret, "db"), envFrom(dependency.ConfigMap, "more"))
			})
			x.set(configMap("other", "a", "2"))
			tc.do(x)
			x.tick(time.Minute)
			if diff := cmp.Diff(tc.want, outcomeOf(x.act())); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
			if d := x.act(); d.State != policy.InSync || d.Action != policy.None {
				t.Errorf("the next decision = %+v, want state InSync and no action", d)
			}
		})
	}
}

// TestDecide_VerifyKeyThatGoesWithoutADate: the removal of a key has no date, which matters if the key is
// read.
func TestDecide_VerifyKeyThatGoesWithoutADate(t *testing.T) {
	for name, tt := range map[string]struct {
		read part
		want policy.Action
	}{
		"the key is read":     {envFrom(dependency.Secret, "db"), policy.RollOut},
		"another key is read": {env(dependency.Secret, "db", "password"), policy.Verify},
	} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, podOf(tt.read), secret("db", "password", "1"))
			x.SeparateCounters()
			x.adopt()
			x.set(secret("db", "password", "2", "user", "a"))
			x.tick(time.Minute)
			x.set(secret("db", "password", "2"))
			x.tick(time.Minute)
			x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "app:2" })
			x.tick(time.Minute)
			if d := x.decide(); !d.Stale || d.Action != tt.want {
				t.Errorf("decision = %+v, want action %s", d, tt.want)
			}
		})
	}
}

// Even if pods have read the last change, they may not have read content that changed and changed back.
func TestDecide_VerifiedWhileOtherContentWentThereAndBack(t *testing.T) {
	x := newWorld(t, podOf(env(dependency.Secret, "db", "password"), envFrom(dependency.ConfigMap, "settings")), secret("db", "password", "1"), configMap("settings", "a", "1"))
	x.SeparateCounters()
	x.adopt()
	x.set(secret("db", "password", "2"))
	x.set(configMap("settings", "a", "2"))
	x.tick(time.Second)
	x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "app:2" })
	x.tick(time.Second)
	x.set(configMap("settings", "a", "1"))
	x.tick(time.Minute)
	if d := x.decide(); d.Action != policy.Verify {
		t.Fatalf("at first: decision = %+v, want action Verify", d)
	}
	x.verified = new(true)
	d := x.decide()
	if diff := cmp.Diff(inspect("ConfigMap/settings"), outcomeOf(d)); diff != "" {
		t.Errorf("decision (-want +got):\n%s", diff)
	}
	e := x.evaluate()
	observed := policy.Observed{Now: x.now, Verified: &policy.Verification{true, e.Decide(policy.Observed{Now: x.now}).WrittenAt, e.Workload.StartedBy}, Inspected: &policy.Inspection{Of: d.Excursions, StartedBy: e.Workload.StartedBy, Mixed: []string{"ConfigMap/settings"}}}
	if d := e.Decide(observed); d.Action != policy.WriteMixed {
		t.Errorf("once some pods have read the content: decision = %+v, want action WriteMixed", d)
	}
}

// Content changes and changes back before a template that only a list shows. Once the pods are known to be newer, the
// record is written again, although it has the same content for earlier pods.
func TestDecide_VerifyOfContentThatIsRecorded(t *testing.T) {
	x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1"))
	x.adopt()
	x.set(secret("db", "password", "2"))
	x.tick(time.Minute)
	x.broken(func() {
		x.set(configMap("unrelated", "a", "1"))
		x.set(secret("db", "password", "1"))
		x.tick(time.Minute)
		x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "app:2" })
	})
	if d := x.decide(); d.Action != policy.Verify {
		t.Fatalf("decision = %+v, want action Verify", d)
	}
	x.verified = new(true)
	if d := x.act(); d.State != policy.InSync || d.Action != policy.WriteVerified {
		t.Fatalf("the pods are newer: decision = %+v, want state InSync and action WriteVerified", d)
	}
	x.verified = nil
	if d := x.decide(); d.State != policy.InSync || d.Action != policy.None {
		t.Errorf("the next decision = %+v, want state InSync and no action", d)
	}
}
