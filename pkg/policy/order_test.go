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

// TestDecide_VerifyIsAskedOnlyWhenTheAnswerCounts: it costs calls of the API.
func TestDecide_VerifyIsAskedOnlyWhenTheAnswerCounts(t *testing.T) {
	image := func(x *world) {
		x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "app:2" })
	}
	for name, tc := range map[string]struct {
		do   func(*world)
		want bool
	}{
		"content, a second later the template":       {func(x *world) { x.set(secret("db", "password", "2")); x.tick(time.Second); image(x) }, true},
		"in the same second: the pods may be older":  {func(x *world) { x.set(secret("db", "password", "2")); x.tick(999 * time.Millisecond); image(x) }, false},
		"the template, then content":                 {func(x *world) { image(x); x.tick(time.Second); x.set(secret("db", "password", "2")) }, false},
		"content only":                               {func(x *world) { x.set(secret("db", "password", "2")) }, false},
		"a source comes, then the template":          {func(x *world) { x.set(secret("extra", "a", "1")); x.tick(time.Second); image(x) }, true},
		"a source goes, and when is written nowhere": {func(x *world) { x.remove(dependency.Secret, "gone"); x.tick(time.Second); image(x) }, false},
		"a key goes, and when is written nowhere":    {func(x *world) { x.set(configMap("settings", "a", "1")); x.tick(time.Second); image(x) }, false},
		"a source changes and another goes": {func(x *world) {
			x.set(secret("db", "password", "2"))
			x.remove(dependency.Secret, "gone")
			x.tick(time.Second)
			image(x)
		}, false},
		"a source is deleted and comes with other content": {func(x *world) {
			x.remove(dependency.Secret, "gone")
			x.tick(time.Second)
			x.set(secret("gone", "a", "2"))
			x.tick(time.Second)
			image(x)
		}, true},
		"what a glob names, as what has gone of it is not known": {func(x *world) { x.set(secret("feature-1", "a", "2")); x.tick(time.Second); image(x) }, false},
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

// With several revision counters, the order in which content and template were read says nothing.
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

// An owner that replaces the whole workload takes the record with it. With several revision counters
// times tell whether its pods have read a change, unless that is the removal of a key.
func TestDecide_VerifyIsAskedOfWhatIsNotRecorded(t *testing.T) {
	for name, tt := range map[string]struct {
		content []string
		want    outcome
	}{
		"a key changed": {[]string{"password", "2", "user", "1"}, outcome{policy.Pending, "Verifying", policy.Verify, "Secret/db"}},
		"a key went":    {[]string{"password", "1"}, rollOut("Secret/db")},
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

// A template that was there when this process began is older than all that it sees, whatever clocks
// say.
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

// A list tells neither when the template changed since the watch was cut, nor that it changed and changed back. But
// what had been read before was written before.
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
		"it changed too":              {other, both(other, content, func(x *world) { image(x, "app:2") }), policy.Verify},
		"it changed and changed back": {other, both(other, content, func(x *world) { image(x, "app:2"); x.tick(time.Second); image(x, "") }), policy.Verify},
		"it did not change":           {content, func(*world) {}, policy.RollOut},
		"only the content changed":    {other, content, policy.RollOut},
		"the content changed before":  {content, func(x *world) { image(x, "app:2") }, policy.WriteBaseline},
		"and another one before that": {both(content, other), func(x *world) { image(x, "app:2") }, policy.WriteBaseline},
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
	t.Run("the pods are newer: they have read it", func(t *testing.T) {
		x := both(t)
		newer := true
		x.verified = &newer
		if diff := cmp.Diff(outcome{policy.InSync, "ContentApplied", policy.WriteVerified, ""}, outcomeOf(x.act())); diff != "" {
			t.Errorf("decision (-want +got):\n%s", diff)
		}
		x.verified = nil
		if diff := cmp.Diff(nothing, outcomeOf(x.act())); diff != "" {
			t.Errorf("after that (-want +got):\n%s", diff)
		}
	})
	t.Run("they are newer than what was written before: it is asked again", func(t *testing.T) {
		x := both(t)
		newer, before := true, x.decide()
		x.away(func() {
			x.set(secret("db", "password", "3"))
			x.tick(time.Second)
			x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "app:3" })
		})
		if d := x.evaluate().Decide(policy.Observed{Now: x.now, Verified: &policy.Verification{newer, before.WrittenAt, x.workload().StartedBy}}); d.Action != policy.Verify {
			t.Errorf("got %+v", d)
		}
	})
	t.Run("they were newer than what was written, and are of another template now: it is asked again", func(t *testing.T) {
		x := both(t)
		verified := &policy.Verification{true, x.decide().WrittenAt, x.workload().StartedBy}
		x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "app:3" })
		x.restart()
		if d := x.evaluate().Decide(policy.Observed{Now: x.now, Verified: verified}); d.Action != policy.Verify {
			t.Errorf("got %+v", d)
		}
	})
	t.Run("they are older, or it is not known: they are restarted", func(t *testing.T) {
		x := both(t)
		newer := false
		x.verified = &newer
		if diff := cmp.Diff(rollOut("Secret/db"), outcomeOf(x.act())); diff != "" {
			t.Errorf("decision (-want +got):\n%s", diff)
		}
		x.verified = nil
		if d := x.act(); d.State != policy.InSync || d.Action != policy.None {
			t.Errorf("after that: %+v", d)
		}
	})
	t.Run("the Deployment is paused: it is looked up when it is resumed", func(t *testing.T) {
		x := both(t)
		x.edit(func(d *appsv1.Deployment) { d.Spec.Paused = true })
		if d := x.decide(); d.State != policy.Blocked || d.Reason != "Paused" {
			t.Errorf("got %+v", d)
		}
	})
}

// TestDecide_ChangeBeforeTheFirstRecordIsNotLost: a workload has been made, and content changes
// before anything could be recorded.
func TestDecide_ChangeBeforeTheFirstRecordIsNotLost(t *testing.T) {
	for name, tc := range map[string]struct {
		do   func(*world)
		want outcome
	}{
		"nothing happens":                   {func(*world) {}, adoption},
		"content changes":                   {func(x *world) { x.set(secret("db", "password", "2")) }, rollOut("Secret/db")},
		"an optional one appears":           {func(x *world) { x.set(secret("extra", "a", "1")) }, rollOut("Secret/extra")},
		"content that a glob names changes": {func(x *world) { x.set(secret("feature-1", "a", "2")) }, rollOut("Secret/feature-*")},
		"a required one appears: the pods have waited for it": {func(x *world) {
			x.set(configMap("late", "a", "1"))
		}, adoption},
		"the required one appears without a key, which comes later": {func(x *world) {
			x.set(configMap("late", "b", "1"))
			x.set(secret("extra", "a", "1"))
			x.set(configMap("late", "a", "1", "b", "1"))
		}, adoption},
		"the required one appears, and changes": {func(x *world) {
			x.set(configMap("late", "a", "1"))
			x.set(configMap("late", "a", "2"))
		}, rollOut("ConfigMap/late")},
		"a required one goes and comes again: the pods run already": {func(x *world) {
			x.remove(dependency.Secret, "db")
			x.set(secret("db", "password", "2"))
		}, rollOut("Secret/db")},
		"what a glob names goes": {func(x *world) { x.remove(dependency.Secret, "feature-1") }, rollOut("Secret/feature-*")},
		"another container has waited for one that appears: the first has not": {func(x *world) {
			x.set(secret("db", "password", "2"))
			x.set(configMap("late", "a", "1"))
		}, rollOut("Secret/db")},
		"content changes, and the workload opts in after that": {func(x *world) {
			x.annotate(policy.ReloadAnnotation, "off")
			x.set(secret("db", "password", "2"))
			x.annotate(policy.ReloadAnnotation, "auto")
		}, adoption},
		"the same, by its namespace": {func(x *world) {
			x.annotate(policy.ReloadAnnotation, "")
			x.set(secret("db", "password", "2"))
			x.namespaceAnnotations(map[string]string{policy.ReloadAnnotation: "auto"})
		}, adoption},
		"content changes and goes, the workload opts in, and the content returns": {func(x *world) {
			x.annotate(policy.ReloadAnnotation, "off")
			x.set(secret("db", "password", "2"))
			x.remove(dependency.Secret, "db")
			x.annotate(policy.ReloadAnnotation, "auto")
			x.set(secret("db", "password", "2"))
		}, rollOut("Secret/db")},
		"the same, of one key": {func(x *world) {
			x.annotate(policy.ReloadAnnotation, "off")
			x.set(secret("db", "password", "2"))
			x.set(secret("db", "user", "1"))
			x.annotate(policy.ReloadAnnotation, "auto")
			x.set(secret("db", "password", "2", "user", "1"))
		}, rollOut("Secret/db")},
		"the same, and the pods have read it before it went": {func(x *world) {
			x.annotate(policy.ReloadAnnotation, "off")
			x.set(secret("db", "password", "2"))
			x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "app:3" })
			x.remove(dependency.Secret, "db")
			x.annotate(policy.ReloadAnnotation, "auto")
			x.set(secret("db", "password", "2"))
		}, adoption},
		"the same, and it returned before the workload opted in": {func(x *world) {
			x.annotate(policy.ReloadAnnotation, "off")
			x.set(secret("db", "password", "2"))
			x.remove(dependency.Secret, "db")
			x.set(secret("db", "password", "2"))
			x.annotate(policy.ReloadAnnotation, "auto")
		}, adoption},
		"an optional one appears, and then the required one: the pods have read both": {func(x *world) {
			x.set(secret("extra", "a", "1"))
			x.set(secret("db", "password", "2"))
			x.set(configMap("late", "a", "1"))
		}, adoption},
		"a required one appears, and then an optional one": {func(x *world) {
			x.set(configMap("late", "a", "1"))
			x.set(secret("extra", "a", "1"))
		}, rollOut("Secret/extra")},
		"metadata changes": {func(x *world) { x.set(annotated(secret("db", "password", "1"), "a", "b")) }, adoption},
		"content changes, and then the template": {func(x *world) {
			x.set(secret("db", "password", "2"))
			x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "app:3" })
		}, adoption},
		"the process starts over: adoption restarts nothing": {func(x *world) {
			x.set(secret("db", "password", "2"))
			x.restart()
		}, adoption},
	} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, podOf(env(dependency.Secret, "db", "password"), optionalEnvFrom(dependency.Secret, "extra"), envFrom(dependency.ConfigMap, "settings")),
				secret("db", "password", "1"), secret("feature-1", "a", "1"), configMap("settings", "a", "1", "b", "1"))
			x.annotate(policy.SourcesAnnotation, "secret/feature-*")
			x.edit(func(d *appsv1.Deployment) { // made, as far as pods are concerned, before our eyes
				d.Spec.Template.Spec.Containers[0].Image = "app:2"
				if strings.Contains(name, "required one appears") || strings.Contains(name, "then the required one") {
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
				t.Errorf("after that: %+v", d)
			}
		})
	}
}

// TestDecide_PodsThatHadToWaitHaveReadWhatChangedMeanwhile, also when something is recorded of
// those before them.
func TestDecide_PodsThatHadToWaitHaveReadWhatChangedMeanwhile(t *testing.T) {
	x := newWorld(t, podOf(env(dependency.Secret, "db", "password"), env(dependency.ConfigMap, "settings", "a")),
		secret("db", "password", "1"), configMap("settings", "a", "1"))
	x.adopt()
	x.remove(dependency.ConfigMap, "settings")
	x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "app:2" })
	x.set(secret("db", "password", "2"))
	if d := x.decide(); d.State != policy.Blocked {
		t.Errorf("while the pods wait: %+v", d)
	}
	x.set(configMap("settings", "a", "2"))
	x.tick(time.Minute)
	if diff := cmp.Diff(baseline, outcomeOf(x.act())); diff != "" {
		t.Errorf("decision (-want +got):\n%s", diff)
	}
}

// TestDecide_OwnRolloutOvertakenByAChange: content changes after the decision and before the
// patch arrives. The pods that the patch makes read it.
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
	x.set(secret("db", "password", "2")) // that of the rollout, which no pod runs with
	x.tick(time.Minute)
	if diff := cmp.Diff(rollOut("Secret/db"), outcomeOf(x.act())); diff != "" {
		t.Errorf("decision (-want +got):\n%s", diff)
	}
}

// TestDecide_ChangeOfWhatTheTemplateHasBegunToRead, before anything could be recorded of it.
func TestDecide_ChangeOfWhatTheTemplateHasBegunToRead(t *testing.T) {
	for name, tc := range map[string]struct {
		do   func(*world)
		want outcome
	}{
		"nothing":            {func(*world) {}, baseline},
		"the source changes": {func(x *world) { x.set(configMap("more", "a", "2", "b", "1")) }, rollOut("ConfigMap/more")},
		"another key changes of one that was read in part": {func(x *world) {
			x.set(secret("db", "password", "1", "user", "2"))
		}, rollOut("Secret/db")},
		"a key changes that it does not read": {func(x *world) {
			x.edit(func(d *appsv1.Deployment) {
				d.Spec.Template.Spec = podOf(env(dependency.Secret, "db", "user"), optionalEnv(dependency.Secret, "extra", "a"))
			})
			x.set(secret("db", "password", "2", "user", "1"))
			x.set(secret("extra", "b", "1"))
		}, baseline},
		"the source had changed before": {func(x *world) {
			x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "app:3" })
		}, baseline},
		"the policy lets it count, and it has changed long ago": {func(x *world) {
			x.act()
			x.annotate(policy.SourcesAnnotation, "configmap/other")
		}, baseline},
		"no process saw what came first": {func(x *world) {
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
				t.Errorf("after that: %+v", d)
			}
		})
	}
}

// TestDecide_VerifyKeyThatGoesWithoutADate: when a key went is written nowhere, which matters to those
// that read it.
func TestDecide_VerifyKeyThatGoesWithoutADate(t *testing.T) {
	for name, tt := range map[string]struct {
		read part
		want policy.Action
	}{
		"it is read":      {envFrom(dependency.Secret, "db"), policy.RollOut},
		"another is read": {env(dependency.Secret, "db", "password"), policy.Verify},
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
				t.Errorf("%+v, want %s", d, tt.want)
			}
		})
	}
}

// That pods have read what changed last says nothing of what changed and changed back.
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
		t.Fatalf("at first: %+v", d)
	}
	x.verified = new(true)
	d := x.decide()
	if diff := cmp.Diff(inspect("ConfigMap/settings"), outcomeOf(d)); diff != "" {
		t.Errorf("decision (-want +got):\n%s", diff)
	}
	e := x.evaluate()
	observed := policy.Observed{Now: x.now, Verified: &policy.Verification{true, e.Decide(policy.Observed{Now: x.now}).WrittenAt, e.Workload.StartedBy}, Inspected: &policy.Inspection{Of: d.Excursions, StartedBy: e.Workload.StartedBy, Mixed: []string{"ConfigMap/settings"}}}
	if d := e.Decide(observed); d.Action != policy.WriteMixed {
		t.Errorf("once some pods have read the content: %+v", d)
	}
}

// Content goes there and back before a template that only a list shows. Once it is known that the pods are newer,
// the record that says so already, of earlier pods, is written as another one.
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
		t.Fatalf("%+v", d)
	}
	x.verified = new(true)
	if d := x.act(); d.State != policy.InSync || d.Action != policy.WriteVerified {
		t.Fatalf("the pods are newer: %+v", d)
	}
	x.verified = nil
	if d := x.decide(); d.State != policy.InSync || d.Action != policy.None {
		t.Errorf("after that: %+v", d)
	}
}
