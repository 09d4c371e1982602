// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package decide_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
)

// at returns a time relative to the beginning of the test of a decision.
func at(d time.Duration) time.Time { return epoch.Add(time.Minute + d) }

// TestDecide_WhatAWorkloadSays covers states and reasons, with the whole decision. The workload was adopted a minute ago, and each event happens now.
func TestDecide_WhatAWorkloadSays(t *testing.T) {
	const hold = " Automatic restarts are on hold until this is fixed."
	change := password("2")
	earlier := func(x *world) {
		x.tick(-10 * time.Second)
		change(x)
		x.tick(10 * time.Second)
	}
	paused := func(x *world) { x.edit(func(d *appsv1.Deployment) { d.Spec.Paused = true }) }
	restarted := func(ago time.Duration, streak int) func(*world) {
		return func(x *world) {
			when := metav1.NewMicroTime(x.now.Add(-ago))
			x.annotate(record.LastReloadAnnotation, (&record.LastReload{Time: when, Trigger: db, Automatic: &when, Streak: streak}).Text())
		}
	}
	more := func(x *world) { x.edit(func(d *appsv1.Deployment) { d.Spec.Replicas = new(int32(3)) }) }
	evicting := annotate(record.RecreatingAnnotation, "2026-03-01T12:00:00Z")
	const evicted = "Pods with old content are evicted one by one, as PodDisruptionBudgets allow. If that takes long, the event ConfigRestartWaiting says why."
	inSync := decide.Decision{State: decide.InSync, Reason: "ContentApplied", Message: "The pods run with the current content. The next change restarts them."}
	due := func(d decide.Decision) decide.Decision {
		d.Trigger, d.Stale, d.Message = db, true, "Secret/db has changed. "+d.Message
		if d.Reason == "" {
			d.Reason = "SourceChanged"
		}
		return d
	}
	blocked := func(reason, message string, stale bool) decide.Decision {
		message += hold
		if stale && reason != decide.ReasonInvalidAnnotation { // what restarts the workload is not known
			message += " Then, a restart is due."
		}
		if stale {
			message += " 1 of 1 pod runs with old content."
		}
		return decide.Decision{State: decide.Blocked, Reason: reason, Message: message, Stale: stale}
	}
	for name, tt := range map[string]struct {
		do   func(*world)
		want decide.Decision
	}{
		"in sync": {func(*world) {}, inSync},
		"in sync, not opted in": {
			both(optOut, (*world).act0), decide.Decision{State: decide.InSync, Reason: "ContentApplied", Message: "The pods run with the current content. Automatic restarts are off."},
		},
		"nothing triggers, though it has opted in": {
			both(annotate(policy.ReloadAnnotation, "listed"), (*world).act0),
			decide.Decision{State: decide.InSync, Reason: "NothingTriggers", Message: "No ConfigMap or Secret restarts this workload automatically; spec.sources says why."},
		},
		"what an annotation names does not exist": {
			both(annotate(policy.ReloadAnnotation, "listed", policy.SourcesAnnotation, "secret/nope"), (*world).act0),
			decide.Decision{State: decide.InSync, Reason: "NothingTriggers", Message: "Nothing restarts this workload automatically until a source that annotations name exists. An annotation names a source that does not exist: Secret/nope (configdep.io/sources)."},
		},
		"what an annotation of Reloader names does not exist": {
			both(annotate(policy.ReloadAnnotation, "", secretList, "true,no,a b"), (*world).act0),
			decide.Decision{
				State: decide.InSync, Reason: "NothingTriggers", Message: "Nothing restarts this workload automatically until a source that annotations name exists. " +
					"Annotations name sources that do not exist: Secret/no (secret.reloader.stakater.com/reload) and Secret/true (secret.reloader.stakater.com/reload). " +
					`"a b" in secret.reloader.stakater.com/reload can be the name of no object; names are separated by commas.`,
			},
		},
		"some of what an annotation names does not exist": {
			both(annotate(policy.SourcesAnnotation, "secret/nope"), (*world).act0),
			decide.Decision{State: decide.InSync, Reason: "ContentApplied", Message: inSync.Message + " An annotation names a source that does not exist: Secret/nope (configdep.io/sources)."},
		},
		"a misspelled annotation": {
			annotate("configdep.io/setle", "5s"),
			blocked(decide.ReasonInvalidAnnotation, "Unknown annotation configdep.io/setle (did you mean configdep.io/settle?).", false),
		},
		"an annotation is invalid": {
			annotate(policy.SettleAnnotation, "soon"),
			blocked(decide.ReasonInvalidAnnotation, `Invalid annotation configdep.io/settle="soon": must be a duration such as "0", "500ms", "30s" or "5m".`, false),
		},
		"two annotations are invalid, and content has changed": {
			both(earlier, annotate(policy.StrategyAnnotation, "magic"), func(x *world) { x.namespaceAnnotations(map[string]string{policy.LiveVolumesAnnotation: "maybe"}) }),
			blocked(decide.ReasonInvalidAnnotation, `Invalid annotation configdep.io/strategy="magic": must be one of annotation, env-var, agent, notify, recreate, in-place; invalid annotation configdep.io/live-volumes="maybe" on the Namespace: must be "true" or "false".`, true),
		},
		"the mode is invalid, which does not opt out": {
			annotate(policy.ReloadAnnotation, "true"),
			blocked(decide.ReasonInvalidAnnotation, `Invalid annotation configdep.io/reload="true": must be one of auto, matched, listed, off (did you mean auto?).`, false),
		},
		"a source is missing": {
			func(x *world) { x.remove(dependency.Secret, "db") }, blocked(decide.ReasonSourceMissing, "Secret db is missing: new pods cannot start.", false),
		},
		"a key is missing": {password0, blocked(decide.ReasonKeyMissing, "Secret db lacks the key password: new pods cannot start.", false)},
		"a source and a key are missing, and something has changed": {
			func(x *world) {
				password0(x)
				x.set(configMap("settings", "a", "2"))
				x.remove(dependency.Secret, "more")
			},
			blocked(decide.ReasonSourceMissing, "Secret db lacks the key password; Secret more is missing: new pods cannot start.", true),
		},
		"a source that does not trigger is missing: pods still do not start": {
			both(annotate(policy.ExcludeAnnotation, "secret/db"), func(x *world) { x.act(); x.remove(dependency.Secret, "db") }),
			blocked(decide.ReasonSourceMissing, "Secret db is missing: new pods cannot start.", false),
		},

		"content has just changed": {
			change, due(decide.Decision{State: decide.Settling, RecheckAt: at(time.Second), Message: "A restart is due at 2026-03-01T12:01:01Z, unless the content changes again: the settle time is 1s."}),
		},
		"content has just changed, settle 0": {
			both(annotate(policy.SettleAnnotation, "0"), change), due(decide.Decision{State: decide.Pending, Action: decide.RollOut, DueAt: at(0), Message: "A restart is due."}),
		},
		"content has settled": {earlier, due(decide.Decision{State: decide.Pending, Action: decide.RollOut, DueAt: at(-9 * time.Second), Message: "A restart is due."})},
		"two sources have changed, the later one just now": {
			both(func(x *world) { x.tick(-3 * time.Second) }, change, func(x *world) { x.tick(3 * time.Second); x.set(configMap("settings", "a", "2")) }),
			decide.Decision{State: decide.Settling, Reason: "SourceChanged", Trigger: "ConfigMap/settings", RecheckAt: at(time.Second), Stale: true,
				Message: "ConfigMap/settings and Secret/db have changed. A restart is due at 2026-03-01T12:01:01Z, unless the content changes again: the settle time is 1s."},
		},
		"restarted a moment ago": {
			both(earlier, restarted(3*time.Second, 1)), due(decide.Decision{
				State: decide.Pending, Reason: "MinInterval", RecheckAt: at(7 * time.Second),
				Message: "A restart is due at 2026-03-01T12:01:07Z: the minimum interval between automatic restarts is 10s.",
			}),
		},
		"restarted repeatedly": {
			both(earlier, restarted(30*time.Second, 3)), due(decide.Decision{
				State: decide.Pending, Reason: "MinInterval", RecheckAt: at(10 * time.Second),
				Message: "A restart is due at 2026-03-01T12:01:10Z: the minimum interval of 10s has grown to 40s after 3 restarts in close succession.",
			}),
		},
		"the interval is over: due since its end, not since content settled": {
			both(earlier, restarted(15*time.Second, 1)), due(decide.Decision{State: decide.Pending, Action: decide.RollOut, DueAt: at(-5 * time.Second), Message: "A restart is due."}),
		},
		"the time of the last restart is invalid: it delays nothing": {
			both(earlier, restarted(-1000*time.Hour, 1)), due(decide.Decision{State: decide.Pending, Action: decide.RollOut, DueAt: at(-9 * time.Second), Message: "A restart is due."}),
		},
		"paused":                   {both(earlier, paused), due(decide.Decision{State: decide.Blocked, Reason: "Paused", Message: "The restart is on hold until the Deployment is resumed."})},
		"paused, without a change": {paused, inSync},
		"changed while no process watched": {
			func(x *world) { x.away(func() { change(x) }) }, due(decide.Decision{State: decide.Settling, RecheckAt: at(time.Second), Message: "A restart is due at 2026-03-01T12:01:01Z, unless the content changes again: the settle time is 1s."}),
		},

		"rolling out, not observed by its controller": {
			func(x *world) { x.edit(func(d *appsv1.Deployment) { d.Generation++ }) },
			decide.Decision{State: decide.RollingOut, Reason: "NotObserved", Message: "The rollout is not complete: its controller has not observed the latest change of the workload yet."},
		},
		"rolling out": {more, decide.Decision{State: decide.RollingOut, Reason: "PodsUpdating", Message: "The rollout is not complete: 1 of 3 pods is up to date."}},
		"held": {
			both(more, paused),
			decide.Decision{State: decide.RollingOut, Reason: "Paused", Message: "The rollout is waiting for a user: 1 of 3 pods is up to date, and the Deployment is paused."},
		},
		"failed": {both(more, failed), decide.Decision{State: decide.Failed, Reason: "ProgressDeadlineExceeded",
			Message: "The rollout is not progressing: 1 of 3 pods is up to date, and the progress deadline has passed."}},
		"pods are being evicted": {
			both(annotate(policy.StrategyAnnotation, "recreate"), evicting), decide.Decision{State: decide.RollingOut, Reason: record.ReasonRecreating, Action: decide.Continue, Message: evicted},
		},
		"pods were being evicted, and the strategy was changed: the other pods must be evicted too": {
			evicting, decide.Decision{State: decide.Pending, Reason: "StrategyChanged", Action: decide.Continue, Trigger: record.TriggerUnknown, Stale: true,
				Message: "The strategy was changed while pods were being evicted. If any of these pods remain, a restart is due."},
		},
		"pods were being evicted, the strategy was changed, and the Deployment is paused": {
			both(evicting, paused), decide.Decision{State: decide.Blocked, Reason: "Paused", Trigger: record.TriggerUnknown, Stale: true,
				Message: "The strategy was changed while pods were being evicted. If any of these pods remain, the restart is on hold until the Deployment is resumed."},
		},
		"pods were being evicted, and the workload has opted out": {
			both(evicting, optOut), decide.Decision{State: decide.InSync, Reason: "ContentApplied", Action: decide.Forget, Message: "The pods run with the current content. Automatic restarts are off."},
		},
		"pods are being evicted, and a source is missing: new pods could not start": {
			both(evicting, func(x *world) { x.remove(dependency.Secret, "db") }),
			decide.Decision{State: decide.Blocked, Reason: decide.ReasonSourceMissing, Message: "Secret db is missing: new pods cannot start." + hold + " Then, a restart is due.", Stale: true},
		},
		"it is being deleted": {
			both(earlier, func(x *world) { x.edit(func(d *appsv1.Deployment) { d.DeletionTimestamp = &metav1.Time{Time: x.now} }) }),
			decide.Decision{State: decide.Stale, Reason: decide.ReasonTerminating, Stale: true, Message: "The Deployment or its namespace is being deleted, so it will not be restarted."},
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, podOf(env(dependency.Secret, "db", "password"), envFrom(dependency.ConfigMap, "settings"), envFrom(dependency.Secret, "more")),
				secret("db", "password", "1"), configMap("settings", "a", "1", "b", "1"), secret("more"))
			x.adopt()
			tt.do(x)
			got := x.decide()
			if diff := cmp.Diff(tt.want, got, told); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
			if again := x.decide(); !cmp.Equal(got, again, told) {
				t.Errorf("a second decision differs (-first +second):\n%s", cmp.Diff(got, again, told))
			}
			if !got.RecheckAt.IsZero() && !got.RecheckAt.After(x.now) {
				t.Errorf("RecheckAt = %v, want a time after now, %v", got.RecheckAt, x.now)
			}
		})
	}
}

// password0 takes the password away.
func password0(x *world) { x.set(secret("db", "user", "u")) }

func failed(x *world) {
	x.edit(func(d *appsv1.Deployment) {
		d.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionFalse, Reason: "ProgressDeadlineExceeded"}}
	})
}

func TestDecide_BecauseNamesAllThatHasChanged(t *testing.T) {
	x := typical(t)
	x.adopt()
	password("2")(x)
	x.set(configMap("settings", "a", "2"))
	x.tick(time.Minute)
	d := x.decide()
	if d.Because != "ConfigMap/settings and Secret/db have changed" || d.Trigger != "ConfigMap/settings" {
		t.Errorf("decision = %+v, want both sources in Because", d)
	}
	changed := x.evaluate().Changed(&d)
	if len(changed) != 2 || changed[0].Name != "settings" || changed[1].Name != "db" || changed[0].Digest == "" || !cmp.Equal(changed[1].Containers, []string{"app"}) {
		t.Errorf("changed = %+v", changed)
	}
}

// Kinds without a rollout are judged by their pods, whether or not they have opted in, and are never restarted.
func TestDecide_KindsWithoutARollout(t *testing.T) {
	spec := podOf(envFrom(dependency.Secret, "db"))
	template := corev1.PodTemplateSpec{Spec: spec}
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, UID: "u", Annotations: map[string]string{policy.ReloadAnnotation: "auto"}}
	}
	pod := func(x *world, name string, owner ...metav1.OwnerReference) {
		p := startedPod(name, &template, x.now)
		p.OwnerReferences = owner
		x.Set(p)
	}
	job := func(owner ...metav1.OwnerReference) *batchv1.Job {
		o := &batchv1.Job{ObjectMeta: meta("once"), Spec: batchv1.JobSpec{Template: template}}
		o.OwnerReferences = owner
		return o
	}
	cronJob := &batchv1.CronJob{ObjectMeta: meta("nightly"), Spec: batchv1.CronJobSpec{JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: template}}}}
	run := func(x *world) {
		o := job(controller("batch/v1", "CronJob", "nightly", "u"))
		o.UID, o.Name = "j", "nightly-1"
		x.Set(o)
		pod(x, "nightly-1-a", controller("batch/v1", "Job", "nightly-1", "j"))
	}
	const notRestarted = decide.ReasonKindNotRestarted
	for name, tt := range map[string]struct {
		kind         dependency.WorkloadKind
		object       string
		create       func(*world)
		before, then outcome
		says         string
	}{
		"a bare Pod": {
			kind.Pod, "bare", func(x *world) {
				p := startedPod("bare", &template, x.now)
				p.Annotations = map[string]string{policy.ReloadAnnotation: "auto"}
				x.Set(p)
			}, nothing, stale(notRestarted, decide.None), "configdep does not restart a Pod.",
		},
		"a Job": {
			kind.Job, "once", func(x *world) { x.Set(job()); pod(x, "once-1", controller("batch/v1", "Job", "once", "u")) },
			nothing, stale(notRestarted, decide.None), "configdep does not restart a Job.",
		},
		"a Job that has finished": {
			kind.Job, "once", func(x *world) { x.Set(job()) }, outcome{State: decide.InSync, Reason: decide.ReasonNoPods}, outcome{State: decide.InSync, Reason: decide.ReasonNoPods}, "",
		},
		"a ReplicaSet": {
			kind.ReplicaSet, "set", func(x *world) {
				x.Set(&appsv1.ReplicaSet{ObjectMeta: meta("set"), Spec: appsv1.ReplicaSetSpec{Selector: &metav1.LabelSelector{}, Template: template}})
				pod(x, "set-1", controller("apps/v1", "ReplicaSet", "set", "u"))
			}, nothing, stale(notRestarted, decide.None), "configdep does not restart a ReplicaSet.",
		},
		"a CronJob that runs": {
			kind.CronJob, "nightly", func(x *world) { x.Set(cronJob.DeepCopy()); run(x) }, nothing, stale(notRestarted, decide.None), "The next run reads the current content.",
		},
		"a CronJob without a run": {
			kind.CronJob, "nightly", func(x *world) { x.Set(cronJob.DeepCopy()) },
			outcome{State: decide.InSync, Reason: "NextRunReadsContent"}, outcome{State: decide.InSync, Reason: "NextRunReadsContent"}, "the next run reads the current content",
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := oneSecret(t)
			x.tick(time.Minute)
			tt.create(x)
			decideNow := func() (d decide.Decision) {
				x.Read(func(known decide.Evaluator) {
					d = known.Evaluate(known.Graph.Workload(dependency.WorkloadKey{Kind: tt.kind, Namespace: namespace, Name: tt.object})).Decide(x.now)
				})
				return d
			}
			x.tick(time.Minute)
			if got := outcomeOf(decideNow()); got != tt.before {
				t.Errorf("before: got %+v, want %+v", got, tt.before)
			}
			password("2")(x)
			x.tick(time.Minute)
			if d := decideNow(); outcomeOf(d) != tt.then || !strings.HasSuffix(d.Message, tt.says) && !strings.Contains(d.Message, tt.says) {
				t.Errorf("then: got %+v: %s; want %+v, %q", outcomeOf(d), d.Message, tt.then, tt.says)
			}
			if tt.kind == kind.CronJob {
				x.remove(dependency.Secret, "db")
				if d := decideNow(); d.State != decide.Blocked || !strings.Contains(d.Message, "the next run cannot start until this is fixed") {
					t.Errorf("a source is missing: %+v", d)
				}
			}
		})
	}
}

// A server that only observes shows a restart that would be due until another tool has made it, and asks for no write.
func TestDecide_Observe(t *testing.T) {
	observing := func(t *testing.T) *world {
		t.Helper()
		x := oneSecret(t)
		x.defaults.Observe = true
		x.restart()
		return x
	}
	observed := outcome{decide.Stale, decide.ReasonObserved, decide.Observe, db}
	t.Run("until another tool restarts the pods", func(t *testing.T) {
		x := observing(t)
		x.want("at first", nothing)
		password("2")(x)
		x.tick(time.Minute)
		x.want("changed", observed)
		x.image("app:2")
		x.want("another tool restarts them", outcome{State: decide.RollingOut, Reason: "PodsUpdating"})
		x.rollOut()
		x.want("restarted", nothing)
	})
	t.Run("content changes back", func(t *testing.T) {
		x := observing(t)
		password("2")(x)
		x.tick(time.Minute)
		password("1")(x)
		x.want("back", nothing)
	})
	t.Run("no write", func(t *testing.T) {
		x := observing(t)
		x.annotate(record.RecreatingAnnotation, "none", policy.StrategyAnnotation, "recreate")
		x.want("pods are being evicted", outcome{State: decide.RollingOut, Reason: record.ReasonRecreating})
		optOut(x)
		x.want("opted out", nothing)
	})
}

// Workloads that need no decisions: nothing is to be done for them, whatever happens.
func TestDormant(t *testing.T) {
	for name, tt := range map[string]struct {
		annotations []string
		want        bool
	}{
		"has not opted in":        {[]string{policy.ReloadAnnotation, "off"}, true},
		"has opted in":            {[]string{policy.ReloadAnnotation, "auto"}, false},
		"has a record left":       {[]string{policy.ReloadAnnotation, "off", record.ConfigHashAnnotation, "v1.00000000.1"}, false},
		"with pods left to evict": {[]string{policy.ReloadAnnotation, "off", record.RecreatingAnnotation, "a1b2c3d4"}, false},
		"with a pause to be ended": {[]string{policy.ReloadAnnotation, "off", pausedAt, "2026-01-02T15:04:05Z", record.LastReloadAnnotation,
			`{"time":"2026-01-02T15:04:05.000000Z","trigger":"Secret/db"}`}, false},
		"with fields to give up": {[]string{policy.ReloadAnnotation, "off", record.AppliedFieldsAnnotation, "{}"}, false},
		"has an invalid mode":    {[]string{policy.ReloadAnnotation, "yes"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			x := oneSecret(t)
			x.annotate(tt.annotations...)
			if got := policy.Dormant(x.workload()); got != tt.want {
				t.Errorf("Dormant = %t", got)
			}
			if d := x.decide(); tt.want && d.Action != decide.None {
				t.Errorf("action = %s", d.Action)
			}
		})
	}
}
