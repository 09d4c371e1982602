package policy

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/dependency"
)

// at returns a time after the beginning of the world.
func at(d time.Duration) time.Time { return epoch.Add(time.Minute + d) }

// TestWhatAWorkloadSays has every state and reason, with all that is told of it. The
// workload was adopted a minute ago; what happens, happens now.
func TestWhatAWorkloadSays(t *testing.T) {
	change := func(x *world) { x.set(secret("db", "password", "2")) }
	changeEarlier := func(x *world) {
		x.tick(-10 * time.Second)
		change(x)
		x.tick(10 * time.Second)
	}
	status := func(f func(*appsv1.Deployment)) func(*world) {
		return func(x *world) { x.edit(f) }
	}
	restarted := func(ago time.Duration, streak int) func(*world) {
		return func(x *world) {
			when := metav1.NewMicroTime(x.now.Add(-ago))
			last := LastReload{Time: when, Trigger: "Secret/db", Automatic: &when, Streak: streak}
			x.annotate(LastReloadAnnotation, last.json())
		}
	}
	both := func(fs ...func(*world)) func(*world) {
		return func(x *world) {
			for _, f := range fs {
				f(x)
			}
		}
	}
	replicas := func(d *appsv1.Deployment, n int32) { d.Spec.Replicas = &n }
	for name, tc := range map[string]struct {
		do   func(*world)
		want Decision
	}{
		"not opted in": {
			func(x *world) { x.annotate(ReloadAnnotation, "") },
			Decision{State: Unmanaged, Reason: "NotOptedIn", Message: "Nothing restarts this workload when its sources change; a Reload does."},
		},
		"opted out, with a change": {
			both(change, func(x *world) { x.annotate(ReloadAnnotation, "off") }),
			Decision{State: Unmanaged, Reason: "NotOptedIn", Message: "Nothing restarts this workload when its sources change; a Reload does."},
		},
		"in sync": {
			func(*world) {},
			Decision{State: InSync, Reason: "ContentApplied", Message: "The pods run with the present content; the next change restarts them."},
		},
		"in sync, restarted before": {
			restarted(time.Second, 3),
			Decision{State: InSync, Reason: "ContentApplied", Trigger: "Secret/db", Message: "The pods run with the present content; the next change restarts them."},
		},
		"nothing recorded": {
			func(x *world) { x.annotate(ConfigHashAnnotation, "") },
			Decision{State: InSync, Reason: "ContentApplied", Action: WriteBaseline, Message: "The pods run with the present content; the next change restarts them."},
		},
		"an annotation is spoilt": {
			func(x *world) { x.annotate(SettleAnnotation, "soon") },
			Decision{State: Blocked, Reason: ReasonInvalidAnnotation, Message: `The annotation configdep.io/settle has the value "soon": a duration such as "0", "500ms", "30s" or "5m" is needed. Nothing restarts this workload by itself until that is mended.`},
		},
		"two annotations are spoilt, and content has changed": {
			both(changeEarlier, func(x *world) {
				x.annotate(StrategyAnnotation, "magic")
				x.namespaceAnnotations(map[string]string{LiveVolumesAnnotation: "maybe"})
			}),
			Decision{State: Blocked, Reason: ReasonInvalidAnnotation, Message: `The annotation configdep.io/strategy has the value "magic": allowed are annotation, recreate; the annotation Namespace configdep.io/live-volumes has the value "maybe": allowed are "true" and "false". Nothing restarts this workload by itself until that is mended.`},
		},
		"the mode is spoilt: that is no opting out": {
			func(x *world) { x.annotate(ReloadAnnotation, "true") },
			Decision{State: Blocked, Reason: ReasonInvalidAnnotation, Message: `The annotation configdep.io/reload has the value "true": allowed are auto, matched, listed, off. Nothing restarts this workload by itself until that is mended.`},
		},
		"a source is missing": {
			func(x *world) { x.remove(dependency.Secret, "db") },
			Decision{State: Blocked, Reason: ReasonSourceMissing, Stale: true, Message: "Secret db is missing: new pods do not start. Nothing is restarted until that is mended."},
		},
		"a key is missing": {
			func(x *world) { x.set(secret("db", "user", "u")) },
			Decision{State: Blocked, Reason: ReasonKeyMissing, Stale: true, Message: "Secret db lacks password: new pods do not start. Nothing is restarted until that is mended."},
		},
		"a source and a key are missing, and something has changed": {
			func(x *world) {
				x.set(secret("db", "user", "u"))
				x.remove(dependency.ConfigMap, "settings")
			},
			Decision{State: Blocked, Reason: ReasonSourceMissing, Stale: true, Message: "ConfigMap settings is missing; Secret db lacks password: new pods do not start. Nothing is restarted until that is mended."},
		},
		"a source that does not trigger is missing: pods do not start all the same": {
			both(func(x *world) { x.annotate(ExcludeAnnotation, "secret/db"); x.act() }, func(x *world) { x.remove(dependency.Secret, "db") }),
			Decision{State: Blocked, Reason: ReasonSourceMissing, Message: "Secret db is missing: new pods do not start. Nothing is restarted until that is mended."},
		},

		"content has just changed": {
			change,
			Decision{State: Settling, Reason: "SourceChanged", Trigger: "Secret/db", RecheckAt: at(time.Second), Stale: true, WrittenAt: at(0),
				Message: "Secret/db has changed; the workload is restarted once nothing has changed for 1s."},
		},
		"content has just changed, settle 0": {
			both(func(x *world) { x.annotate(SettleAnnotation, "0") }, change),
			Decision{State: Pending, Reason: "SourceChanged", Action: RollOut, Trigger: "Secret/db", Stale: true, WrittenAt: at(0), DueAt: at(0),
				Message: "Secret/db has changed; the workload is restarted now."},
		},
		"content has settled": {
			changeEarlier,
			Decision{State: Pending, Reason: "SourceChanged", Action: RollOut, Trigger: "Secret/db", Stale: true, WrittenAt: at(-10 * time.Second), DueAt: at(-9 * time.Second),
				Message: "Secret/db has changed; the workload is restarted now."},
		},
		"two sources have changed, the later one just now": {
			both(changeEarlier, func(x *world) { x.set(configMap("settings", "a", "2")) }),
			Decision{State: Settling, Reason: "SourceChanged", Trigger: "ConfigMap/settings", RecheckAt: at(time.Second), Stale: true,
				Message: "ConfigMap/settings, Secret/db have changed; the workload is restarted once nothing has changed for 1s."},
		},
		"restarted a moment ago": {
			both(changeEarlier, restarted(3*time.Second, 1)),
			Decision{State: Pending, Reason: "MinInterval", Trigger: "Secret/db", RecheckAt: at(7 * time.Second), Stale: true, WrittenAt: at(-10 * time.Second),
				Message: "Secret/db has changed; the workload is restarted at 2026-03-01T12:01:07Z, because it has been restarted lately."},
		},
		"restarted a moment ago, and content has just changed": {
			both(change, restarted(3*time.Second, 1)),
			Decision{State: Settling, Reason: "SourceChanged", Trigger: "Secret/db", RecheckAt: at(time.Second), Stale: true, WrittenAt: at(0),
				Message: "Secret/db has changed; the workload is restarted once nothing has changed for 1s."},
		},
		"restarted again and again": {
			both(changeEarlier, restarted(30*time.Second, 3)),
			Decision{State: Pending, Reason: "MinInterval", Trigger: "Secret/db", RecheckAt: at(10 * time.Second), Stale: true, WrittenAt: at(-10 * time.Second),
				Message: "Secret/db has changed; the workload is restarted at 2026-03-01T12:01:10Z, because it has been restarted lately."},
		},
		"the interval is over: due when it ended, not when content had settled": {
			both(changeEarlier, restarted(15*time.Second, 1)),
			Decision{State: Pending, Reason: "SourceChanged", Action: RollOut, Trigger: "Secret/db", Stale: true, WrittenAt: at(-10 * time.Second), DueAt: at(-5 * time.Second),
				Message: "Secret/db has changed; the workload is restarted now."},
		},
		"the time of the last restart is spoilt: it does not hold anything up": {
			both(changeEarlier, restarted(-1000*time.Hour, 1)),
			Decision{State: Pending, Reason: "SourceChanged", Action: RollOut, Trigger: "Secret/db", Stale: true, WrittenAt: at(-10 * time.Second), DueAt: at(-9 * time.Second),
				Message: "Secret/db has changed; the workload is restarted now."},
		},
		"paused": {
			both(changeEarlier, status(func(d *appsv1.Deployment) { d.Spec.Paused = true })),
			Decision{State: Blocked, Reason: "Paused", Trigger: "Secret/db", Stale: true, WrittenAt: at(-10 * time.Second),
				Message: "Secret/db has changed. The Deployment is paused: it is restarted when somebody resumes it."},
		},
		"paused, without a change": {
			status(func(d *appsv1.Deployment) { d.Spec.Paused = true }),
			Decision{State: InSync, Reason: "ContentApplied", Message: "The pods run with the present content; the next change restarts them."},
		},
		"changed while nobody looked": {
			func(x *world) { x.away(func() { change(x) }); x.tick(time.Second) },
			Decision{State: Pending, Reason: "SourceChanged", Action: RollOut, Trigger: "Secret/db", Stale: true, WrittenAt: at(0),
				Message: "Secret/db has changed; the workload is restarted now."},
		},
		"changed while nobody looked, and has to settle all the same": {
			func(x *world) { x.away(func() { change(x) }) },
			Decision{State: Settling, Reason: "SourceChanged", Trigger: "Secret/db", Stale: true, WrittenAt: at(0), RecheckAt: at(time.Second),
				Message: "Secret/db has changed; the workload is restarted once nothing has changed for 1s."},
		},
		"changed while nobody looked, and so has the template": {
			func(x *world) {
				x.away(func() {
					change(x)
					x.tick(time.Second)
					x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "app:2" })
				})
			},
			Decision{State: Pending, Reason: "Verifying", Action: Verify, Trigger: "Secret/db", Stale: true, WrittenAt: at(0),
				Message: "Secret/db has changed, and so has the pod template: it is looked up which came first."},
		},
		"only the hash is left, and it is another": {
			func(x *world) {
				x.annotate(AppliedSourcesAnnotation, "")
				x.away(func() { change(x) })
				x.tick(time.Second)
			},
			Decision{State: Pending, Reason: "SourceChanged", Action: RollOut, Trigger: TriggerUnknown, Stale: true,
				Message: "Its content has changed; the workload is restarted now."},
		},

		"rolling out, not seen by its controller": {
			status(func(d *appsv1.Deployment) { d.Generation = 2 }),
			Decision{State: RollingOut, Reason: "NotObserved", Message: "The pods are being replaced: its controller has not seen the new template yet."},
		},
		"rolling out": {
			both(restarted(time.Second, 1), status(func(d *appsv1.Deployment) { replicas(d, 3) })),
			Decision{State: RollingOut, Reason: "PodsUpdating", Trigger: "Secret/db", Message: "The pods are being replaced: 1 of 3 pods are new."},
		},
		"held": {
			status(func(d *appsv1.Deployment) { replicas(d, 3); d.Spec.Paused = true }),
			Decision{State: RollingOut, Reason: "Paused", Message: "The pods are being replaced: it is paused with 1 of 3 pods new."},
		},
		"failed": {
			status(func(d *appsv1.Deployment) {
				replicas(d, 3)
				d.Status.Conditions = []appsv1.DeploymentCondition{{
					Type: appsv1.DeploymentProgressing, Status: corev1.ConditionFalse, Reason: "ProgressDeadlineExceeded",
				}}
			}),
			Decision{State: Failed, Reason: "ProgressDeadlineExceeded", Message: "The rollout does not progress: 1 of 3 pods are new and the progress deadline has passed."},
		},
		"a change while it rolls out": {
			both(changeEarlier, status(func(d *appsv1.Deployment) { replicas(d, 3) })),
			Decision{State: Pending, Reason: "SourceChanged", Action: RollOut, Trigger: "Secret/db", Stale: true, WrittenAt: at(-10 * time.Second), DueAt: at(-9 * time.Second),
				Message: "Secret/db has changed; the workload is restarted now."},
		},
		"pods are being evicted": {
			func(x *world) {
				x.annotate(RecreatingAnnotation, "2026-03-01T12:00:00Z", StrategyAnnotation, "recreate")
			},
			Decision{State: RollingOut, Reason: ReasonRecreating, Action: Continue, Message: "The pods are being evicted one after the other, as PodDisruptionBudgets allow."},
		},
		"pods were being evicted, and the strategy is another: those that are left must go too": {
			func(x *world) { x.annotate(RecreatingAnnotation, "2026-03-01T12:00:00Z") },
			Decision{State: Pending, Reason: "StrategyChanged", Action: RollOut, Trigger: TriggerUnknown, Stale: true,
				Message: "Some pods were still to be evicted when the strategy was changed; the workload is restarted now."},
		},
		"the same, and the Deployment is paused": {
			func(x *world) {
				x.annotate(RecreatingAnnotation, "2026-03-01T12:00:00Z")
				x.edit(func(d *appsv1.Deployment) { d.Spec.Paused = true })
			},
			Decision{State: Blocked, Reason: "Paused", Trigger: TriggerUnknown, Stale: true,
				Message: "Some pods were still to be evicted when the strategy was changed. The Deployment is paused: it is restarted when somebody resumes it."},
		},
		"pods were being evicted, and the workload has opted out: nobody knows what is left": {
			func(x *world) {
				x.annotate(RecreatingAnnotation, "2026-03-01T12:00:00Z", StrategyAnnotation, "recreate", ReloadAnnotation, "off")
			},
			Decision{State: Unmanaged, Reason: "NotOptedIn", Action: Abandon, Message: "Nothing restarts this workload when its sources change; a Reload does."},
		},
		"nothing restarts it, though it has opted in": {
			func(x *world) { x.annotate(ReloadAnnotation, "listed"); x.act() },
			Decision{State: InSync, Reason: "NothingTriggers", Message: "No ConfigMap or Secret restarts this workload by itself; the reasons are given with its sources."},
		},
		"pods are being evicted, and the rollout fails: that goes on": {
			func(x *world) {
				x.annotate(RecreatingAnnotation, "2026-03-01T12:00:00Z", StrategyAnnotation, "recreate")
				x.edit(func(d *appsv1.Deployment) { d.Generation = 2 })
			},
			Decision{State: RollingOut, Reason: ReasonRecreating, Action: Continue, Message: "The pods are being evicted one after the other, as PodDisruptionBudgets allow."},
		},
		"pods are being evicted, and the record is gone": {
			func(x *world) {
				x.annotate(RecreatingAnnotation, "2026-03-01T12:00:00Z", StrategyAnnotation, "recreate", ConfigHashAnnotation, "")
			},
			Decision{State: RollingOut, Reason: ReasonRecreating, Action: WriteBaseline, Message: "The pods are being evicted one after the other, as PodDisruptionBudgets allow."},
		},
		"pods are being evicted, and a source is missing: their heirs could not start": {
			func(x *world) {
				x.annotate(RecreatingAnnotation, "2026-03-01T12:00:00Z")
				x.remove(dependency.Secret, "db")
			},
			Decision{State: Blocked, Reason: ReasonSourceMissing, Stale: true, Message: "Secret db is missing: new pods do not start. Nothing is restarted until that is mended."},
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, podOf(env(dependency.Secret, "db", "password"), envFrom(dependency.ConfigMap, "settings")),
				secret("db", "password", "1"), configMap("settings", "a", "1", "b", "1"))
			x.adopt()
			tc.do(x)
			got := x.evaluate().Decide(Observed{Now: x.now})
			// WrittenAt is for Verify alone, and counts in its own tests.
			ignore := cmpopts.IgnoreFields(Decision{}, "WrittenAt", "Because")
			if tc.want.Action == Verify {
				ignore = cmpopts.IgnoreFields(Decision{}, "Because")
			}
			if diff := cmp.Diff(tc.want, got, ignore); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if again := x.evaluate().Decide(Observed{Now: x.now}); !cmp.Equal(got, again) {
				t.Errorf("the same question has another answer:\n%s", cmp.Diff(got, again))
			}
			if !got.RecheckAt.IsZero() && !got.RecheckAt.After(x.now) {
				t.Errorf("time alone changes the decision at %v, which is not after now, %v", got.RecheckAt, x.now)
			}
		})
	}
}

func TestKindsWithoutARolloutAreNeverRestarted(t *testing.T) {
	for _, tc := range []struct {
		kind        dependency.WorkloadKind
		annotations map[string]string
		want        Decision
	}{
		{dependency.CronJob, map[string]string{ReloadAnnotation: "auto", ExcludeAnnotation: "secret/gone"}, Decision{State: Blocked, Reason: ReasonSourceMissing,
			Message: "Secret gone is missing: new pods do not start. Nothing is restarted until that is mended."}},
		{dependency.CronJob, map[string]string{ReloadAnnotation: "nope"}, Decision{State: Blocked, Reason: ReasonInvalidAnnotation,
			Message: `The annotation configdep.io/reload has the value "nope": allowed are auto, matched, listed, off. Nothing restarts this workload by itself until that is mended.`}},
		{dependency.CronJob, nil, Decision{State: Unmanaged, Reason: "NextRunReadsContent",
			Message: "Nothing needs a restart: the next run of the CronJob reads the content that is then there."}},
		{dependency.Job, map[string]string{ReloadAnnotation: "auto"}, Decision{State: Unmanaged, Reason: "KindNotReloaded",
			Message: "Nothing is restarted: a Job has no rollout."}},
		{dependency.Pod, map[string]string{ReloadAnnotation: "auto"}, Decision{State: Unmanaged, Reason: "KindNotReloaded",
			Message: "Nothing is restarted: a Pod has no rollout."}},
		{dependency.ReplicaSet, map[string]string{SettleAnnotation: "soon", ReloadAnnotation: "auto"}, Decision{State: Unmanaged, Reason: "KindNotReloaded",
			Message: "Nothing is restarted: a ReplicaSet has no rollout."}},
	} {
		x := newWorld(t, podOf())
		w := &dependency.Workload{
			WorkloadKey: dependency.WorkloadKey{Kind: tc.kind, Namespace: namespace, Name: "once"},
			Annotations: tc.annotations, References: []dependency.Reference{{Kind: dependency.Secret, Name: "gone", Uses: []dependency.Use{{Type: dependency.EnvFrom}}}},
		}
		got := Evaluate(x.graph, x.digester, w, x.defaults).Decide(Observed{Now: epoch})
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s with %v (-want +got):\n%s", tc.kind, tc.annotations, diff)
		}
	}
}

// TestChangesThatBelongTogetherMakeOneRestart: what comes within the settle time waits
// with the rest, by when it arrived, whatever the times in the objects say.
func TestChangesThatBelongTogetherMakeOneRestart(t *testing.T) {
	x := typical(t)
	x.adopt()
	start := x.now
	expect := func(after time.Duration, want outcome, recheck time.Duration) {
		t.Helper()
		x.now = start.Add(after)
		d := x.decide()
		if diff := cmp.Diff(want, outcomeOf(d)); diff != "" {
			t.Fatalf("after %v (-want +got):\n%s", after, diff)
		}
		if want := start.Add(recheck); recheck > 0 && !d.RecheckAt.Equal(want) {
			t.Errorf("after %v the decision changes at %v, want %v", after, d.RecheckAt, want)
		}
	}
	settling := func(trigger string) outcome { return outcome{Settling, "SourceChanged", None, trigger} }

	x.set(secret("db", "password", "2"))
	expect(0, settling("Secret/db"), time.Second)
	expect(999*time.Millisecond, settling("Secret/db"), time.Second)
	x.set(configMap("settings", "a", "2"))
	expect(1000*time.Millisecond, settling("ConfigMap/settings"), 1999*time.Millisecond)
	x.set(configMap("settings", "a", "1", "b", "1")) // and back: nothing to wait for any more
	expect(1500*time.Millisecond, rollOut("Secret/db"), 0)
	x.act()
	expect(1600*time.Millisecond, outcome{InSync, "ContentApplied", None, "Secret/db"}, 0)
}

// TestContentThatNeverSettlesIsRolledOut after ten times the settle time.
func TestContentThatNeverSettlesIsRolledOut(t *testing.T) {
	x := typical(t)
	x.annotate(SettleAnnotation, "3s")
	x.adopt()
	start := x.now
	for n := 2; ; n++ {
		x.set(secret("db", "password", string(rune('0'+n))))
		d := x.decide()
		if d.Action == RollOut {
			break
		}
		if latest := start.Add(30 * time.Second); d.RecheckAt.After(latest) || d.State != Settling {
			t.Fatalf("after %v: %+v", x.now.Sub(start), d)
		}
		x.tick(time.Second)
	}
	if waited := x.now.Sub(start); waited != 30*time.Second {
		t.Errorf("rolled out after %v, want 30s", waited)
	}
}

func TestLongSettleTimesDoNotOverflow(t *testing.T) {
	x := typical(t)
	x.annotate(SettleAnnotation, "1000000h")
	x.adopt()
	x.set(secret("db", "password", "2"))
	for range 3 {
		if d := x.decide(); d.State != Settling {
			t.Fatalf("got %+v", d)
		}
		x.tick(1000 * time.Hour)
	}
}

// TestVerifyIsAskedOnlyWhenTheAnswerCounts: it costs calls of the API.
func TestVerifyIsAskedOnlyWhenTheAnswerCounts(t *testing.T) {
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
			x.annotate(SourcesAnnotation, "secret/feature-*")
			x.adopt()
			x.away(func() { tc.do(x) })
			x.tick(time.Minute)
			d := x.decide()
			if !d.Stale || (d.Action == Verify) != tc.want || !tc.want && d.Action != RollOut {
				t.Errorf("got %+v", d)
			}
		})
	}
}

func TestWhatVerifyFindsDecides(t *testing.T) {
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
		if diff := cmp.Diff(baseline, outcomeOf(x.act())); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		x.verified = nil
		if diff := cmp.Diff(nothing, outcomeOf(x.act())); diff != "" {
			t.Errorf("after that (-want +got):\n%s", diff)
		}
	})
	t.Run("they are older, or it is not known: they are restarted", func(t *testing.T) {
		x := both(t)
		newer := false
		x.verified = &newer
		if diff := cmp.Diff(rollOut("Secret/db"), outcomeOf(x.act())); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		x.verified = nil
		if d := x.act(); d.State != InSync || d.Action != None {
			t.Errorf("after that: %+v", d)
		}
	})
	t.Run("the Deployment is paused: it is looked up when it is resumed", func(t *testing.T) {
		x := both(t)
		x.edit(func(d *appsv1.Deployment) { d.Spec.Paused = true })
		if d := x.decide(); d.State != Blocked || d.Reason != "Paused" {
			t.Errorf("got %+v", d)
		}
	})
}

// TestChangeBeforeTheFirstRecordIsNotLost: a workload has been made, and content changes
// before anything could be recorded.
func TestChangeBeforeTheFirstRecordIsNotLost(t *testing.T) {
	for name, tc := range map[string]struct {
		do   func(*world)
		want outcome
	}{
		"nothing happens":                   {func(*world) {}, baseline},
		"content changes":                   {func(x *world) { x.set(secret("db", "password", "2")) }, rollOut("Secret/db")},
		"an optional one appears":           {func(x *world) { x.set(secret("extra", "a", "1")) }, rollOut("Secret/extra")},
		"content that a glob names changes": {func(x *world) { x.set(secret("feature-1", "a", "2")) }, rollOut("Secret/feature-*")},
		"a required one appears: the pods have waited for it": {func(x *world) {
			x.set(configMap("late", "a", "1"))
		}, baseline},
		"the required one appears without a key, which comes later": {func(x *world) {
			x.set(configMap("late", "b", "1"))
			x.set(secret("extra", "a", "1"))
			x.set(configMap("late", "a", "1", "b", "1"))
		}, baseline},
		"the required one appears, and changes": {func(x *world) {
			x.set(configMap("late", "a", "1"))
			x.set(configMap("late", "a", "2"))
		}, rollOut("ConfigMap/late")},
		"a required one goes and comes again: the pods run already": {func(x *world) {
			x.remove(dependency.Secret, "db")
			x.set(secret("db", "password", "2"))
		}, rollOut("Secret/db")},
		"what a glob names goes": {func(x *world) { x.remove(dependency.Secret, "feature-1") }, rollOut("Secret/feature-*")},
		"content changes, and the workload opts in after that": {func(x *world) {
			x.annotate(ReloadAnnotation, "off")
			x.set(secret("db", "password", "2"))
			x.annotate(ReloadAnnotation, "auto")
		}, baseline},
		"the same, by its namespace": {func(x *world) {
			x.annotate(ReloadAnnotation, "")
			x.set(secret("db", "password", "2"))
			x.namespaceAnnotations(map[string]string{ReloadAnnotation: "auto"})
		}, baseline},
		"an optional one appears, and then the required one: the pods have read both": {func(x *world) {
			x.set(secret("extra", "a", "1"))
			x.set(secret("db", "password", "2"))
			x.set(configMap("late", "a", "1"))
		}, baseline},
		"a required one appears, and then an optional one": {func(x *world) {
			x.set(configMap("late", "a", "1"))
			x.set(secret("extra", "a", "1"))
		}, rollOut("Secret/extra")},
		"metadata changes": {func(x *world) { x.set(annotated(secret("db", "password", "1"), "a", "b")) }, baseline},
		"content changes, and then the template": {func(x *world) {
			x.set(secret("db", "password", "2"))
			x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "app:3" })
		}, baseline},
		"the process begins anew: adoption restarts nothing": {func(x *world) {
			x.set(secret("db", "password", "2"))
			x.restart()
		}, baseline},
	} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, podOf(env(dependency.Secret, "db", "password"), optionalEnvFrom(dependency.Secret, "extra"), envFrom(dependency.ConfigMap, "settings")),
				secret("db", "password", "1"), secret("feature-1", "a", "1"), configMap("settings", "a", "1", "b", "1"))
			x.annotate(SourcesAnnotation, "secret/feature-*")
			x.edit(func(d *appsv1.Deployment) { // made, as far as pods are concerned, before our eyes
				d.Spec.Template.Spec.Containers[0].Image = "app:2"
				if strings.Contains(name, "required one appears") || strings.Contains(name, "then the required one") {
					env(dependency.ConfigMap, "late", "a")(&d.Spec.Template.Spec)
				}
			})
			tc.do(x)
			x.tick(time.Minute)
			if diff := cmp.Diff(tc.want, outcomeOf(x.act())); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if d := x.act(); d.State != InSync || d.Action != None {
				t.Errorf("after that: %+v", d)
			}
		})
	}
}

// TestPodsThatHadToWaitHaveReadWhatChangedMeanwhile, also when something is recorded of
// those before them.
func TestPodsThatHadToWaitHaveReadWhatChangedMeanwhile(t *testing.T) {
	x := newWorld(t, podOf(env(dependency.Secret, "db", "password"), env(dependency.ConfigMap, "settings", "a")),
		secret("db", "password", "1"), configMap("settings", "a", "1"))
	x.adopt()
	x.remove(dependency.ConfigMap, "settings")
	x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "app:2" })
	x.set(secret("db", "password", "2"))
	if d := x.decide(); d.State != Blocked {
		t.Errorf("while the pods wait: %+v", d)
	}
	x.set(configMap("settings", "a", "2"))
	x.tick(time.Minute)
	if diff := cmp.Diff(baseline, outcomeOf(x.act())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestOwnRolloutOvertakenByAChange: content changes after the decision and before the
// patch arrives. The pods that the patch makes read it.
func TestOwnRolloutOvertakenByAChange(t *testing.T) {
	x := typical(t)
	x.adopt()
	x.set(secret("db", "password", "2"))
	x.tick(time.Minute)
	e := x.evaluate()
	data, err := e.Policy.RestartPatch(e.Workload, e.Present(), Automatic(nil, x.now, e.Policy.MinInterval, "Secret/db"), false)
	x.set(secret("db", "password", "3"))
	x.patch(data, err)
	x.tick(time.Minute)
	if diff := cmp.Diff(outcome{InSync, "ContentApplied", WriteBaseline, "Secret/db"}, outcomeOf(x.act())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	x.set(secret("db", "password", "2")) // that of the rollout, which nobody runs with
	x.tick(time.Minute)
	if diff := cmp.Diff(rollOut("Secret/db"), outcomeOf(x.act())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestStormIsBounded rewrites a Secret each second for an hour.
func TestStormIsBounded(t *testing.T) {
	x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "0"))
	x.adopt()
	start := x.now
	next := start // when the Secret is written
	end := start.Add(time.Hour)
	var rollouts []time.Duration
	var last string
	for {
		if next.Before(end) && !x.now.Before(next) {
			last = next.String()
			x.set(secret("db", "password", last))
			next = next.Add(time.Second)
		}
		d := x.act()
		if d.Action == RollOut {
			rollouts = append(rollouts, x.now.Sub(start))
			continue // the patch comes back
		}
		wake := d.RecheckAt
		if next.Before(end) && (wake.IsZero() || next.Before(wake)) {
			wake = next
		}
		if wake.IsZero() {
			break
		}
		x.now = wake
	}
	// After ten settle times; after ten more, with the minimal interval long over; and then
	// by the interval that doubles. The last one comes after the storm.
	var want []time.Duration
	for _, seconds := range []int{10, 21, 41, 81, 161, 321, 641, 1281, 2561, 5121} {
		want = append(want, time.Duration(seconds)*time.Second)
	}
	if diff := cmp.Diff(want, rollouts); diff != "" {
		t.Errorf("rollouts (-want +got):\n%s", diff)
	}
	if len(rollouts) < 2 || len(rollouts) > 12 {
		t.Errorf("%d rollouts", len(rollouts))
	}
	applied := x.evaluate().Record.Hash
	x.set(secret("db", "password", last))
	if x.evaluate().Hash != applied {
		t.Error("the last content has not won")
	}
}

// TestChangeOfWhatTheTemplateHasBegunToRead, before anything could be recorded of it.
func TestChangeOfWhatTheTemplateHasBegunToRead(t *testing.T) {
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
			x.annotate(SourcesAnnotation, "configmap/other")
		}, baseline},
		"nobody saw what came first": {func(x *world) {
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
				t.Errorf("(-want +got):\n%s", diff)
			}
			if d := x.act(); d.State != InSync || d.Action != None {
				t.Errorf("after that: %+v", d)
			}
		})
	}
}

func TestBecauseNamesAllThatHasChanged(t *testing.T) {
	x := newWorld(t, podOf(env(dependency.Secret, "db", "password"), envFrom(dependency.ConfigMap, "settings")),
		secret("db", "password", "1"), configMap("settings", "a", "1"))
	x.adopt()
	x.set(secret("db", "password", "2"))
	x.set(configMap("settings", "a", "2"))
	x.tick(time.Minute)
	if d := x.decide(); d.Because != "ConfigMap/settings, Secret/db have changed" || d.Trigger != "ConfigMap/settings" {
		t.Errorf("%+v", d)
	}
}
