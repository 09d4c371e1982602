package policy

import (
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
	replicas := func(d *appsv1.Deployment, n int32) { d.Spec.Replicas = &n }
	for name, tc := range map[string]struct {
		do   func(*world)
		want Decision
	}{
		"not opted in": {
			func(x *world) { x.annotate(ReloadAnnotation, "") },
			Decision{State: Unmanaged, Reason: "NotOptedIn", Message: "Changes do not restart this workload automatically; a Reload does."},
		},
		"opted out, with a change": {
			both(change, func(x *world) { x.annotate(ReloadAnnotation, "off") }),
			Decision{State: Unmanaged, Reason: "NotOptedIn", Message: "Changes do not restart this workload automatically; a Reload does."},
		},
		"in sync": {
			func(*world) {},
			Decision{State: InSync, Reason: "ContentApplied", Message: "The pods run with the current content. The next change restarts them."},
		},
		"in sync, restarted before": {
			restarted(time.Second, 3),
			Decision{State: InSync, Reason: "ContentApplied", Trigger: "Secret/db", Message: "The pods run with the current content. The next change restarts them."},
		},
		"nothing recorded": {
			func(x *world) { x.annotate(ConfigHashAnnotation, "garbage") },
			Decision{State: Pending, Reason: ReasonNotRecorded, Action: WriteBaseline,
				Message: "The content that the pods run with is not recorded yet. It is recorded without a restart; later changes restart the workload."},
		},
		"the record was removed": {
			func(x *world) { x.annotate(ConfigHashAnnotation, "", AppliedSourcesAnnotation, "") },
			Decision{State: InSync, Reason: ReasonRecordRemoved, Action: WriteBaseline,
				Message: "The pods run with the current content, but another client removed configdep's annotations. They will be written again, with increasing delays while that goes on."},
		},
		"an annotation is invalid": {
			func(x *world) { x.annotate(SettleAnnotation, "soon") },
			Decision{State: Blocked, Reason: ReasonInvalidAnnotation, Message: `The annotation configdep.io/settle has the value "soon": a duration such as "0", "500ms", "30s" or "5m" is needed. Automatic restarts are off until this is fixed.`},
		},
		"two annotations are invalid, and content has changed": {
			both(changeEarlier, func(x *world) {
				x.annotate(StrategyAnnotation, "magic")
				x.namespaceAnnotations(map[string]string{LiveVolumesAnnotation: "maybe"})
			}),
			Decision{State: Blocked, Reason: ReasonInvalidAnnotation, Message: `The annotation configdep.io/strategy has the value "magic": allowed are annotation, recreate; the annotation Namespace configdep.io/live-volumes has the value "maybe": allowed are "true" and "false". Automatic restarts are off until this is fixed.`},
		},
		"the mode is invalid: that is no opting out": {
			func(x *world) { x.annotate(ReloadAnnotation, "true") },
			Decision{State: Blocked, Reason: ReasonInvalidAnnotation, Message: `The annotation configdep.io/reload has the value "true": allowed are auto, matched, listed, off. Automatic restarts are off until this is fixed.`},
		},
		"a source is missing": {
			func(x *world) { x.remove(dependency.Secret, "db") },
			Decision{State: Blocked, Reason: ReasonSourceMissing, Stale: true, Message: "Secret db is missing: new pods cannot start. The workload will not be restarted until this is fixed."},
		},
		"a key is missing": {
			func(x *world) { x.set(secret("db", "user", "u")) },
			Decision{State: Blocked, Reason: ReasonKeyMissing, Stale: true, Message: "Secret db lacks password: new pods cannot start. The workload will not be restarted until this is fixed."},
		},
		"a source and a key are missing, and something has changed": {
			func(x *world) {
				x.set(secret("db", "user", "u"))
				x.remove(dependency.ConfigMap, "settings")
			},
			Decision{State: Blocked, Reason: ReasonSourceMissing, Stale: true, Message: "ConfigMap settings is missing; Secret db lacks password: new pods cannot start. The workload will not be restarted until this is fixed."},
		},
		"a source that does not trigger is missing: pods do not start all the same": {
			both(func(x *world) { x.annotate(ExcludeAnnotation, "secret/db"); x.act() }, func(x *world) { x.remove(dependency.Secret, "db") }),
			Decision{State: Blocked, Reason: ReasonSourceMissing, Message: "Secret db is missing: new pods cannot start. The workload will not be restarted until this is fixed."},
		},

		"content has just changed": {
			change,
			Decision{State: Settling, Reason: "SourceChanged", Trigger: "Secret/db", RecheckAt: at(time.Second), Stale: true, WrittenAt: at(0),
				Message: "Secret/db has changed. The workload will be restarted once the content has not changed for 1s."},
		},
		"content has just changed by the client of the template": {
			both(func(x *world) {
				x.defaults.ReleaseSettle = 30 * time.Second
				x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "app:2" })
			}, change),
			Decision{State: Settling, Reason: "SourceChanged", Trigger: "Secret/db", RecheckAt: at(30 * time.Second), Stale: true, WrittenAt: at(0),
				Message: "Secret/db has changed. The client that changed it also writes the pod template and may be about to: " +
					"the workload will be restarted once that client has changed nothing in the namespace for 30s."},
		},
		"content has just changed, settle 0": {
			both(func(x *world) { x.annotate(SettleAnnotation, "0") }, change),
			Decision{State: Pending, Reason: "SourceChanged", Action: RollOut, Trigger: "Secret/db", Stale: true, WrittenAt: at(0), DueAt: at(0),
				Message: "Secret/db has changed. The workload is being restarted."},
		},
		"content has settled": {
			changeEarlier,
			Decision{State: Pending, Reason: "SourceChanged", Action: RollOut, Trigger: "Secret/db", Stale: true, WrittenAt: at(-10 * time.Second), DueAt: at(-9 * time.Second),
				Message: "Secret/db has changed. The workload is being restarted."},
		},
		"two sources have changed, the later one just now": {
			both(changeEarlier, func(x *world) { x.set(configMap("settings", "a", "2")) }),
			Decision{State: Settling, Reason: "SourceChanged", Trigger: "ConfigMap/settings", RecheckAt: at(time.Second), Stale: true,
				Message: "ConfigMap/settings, Secret/db have changed. The workload will be restarted once the content has not changed for 1s."},
		},
		"restarted a moment ago": {
			both(changeEarlier, restarted(3*time.Second, 1)),
			Decision{State: Pending, Reason: "MinInterval", Trigger: "Secret/db", RecheckAt: at(7 * time.Second), Stale: true, WrittenAt: at(-10 * time.Second),
				Message: "Secret/db has changed. The workload will be restarted at 2026-03-01T12:01:07Z, because it was restarted recently."},
		},
		"restarted a moment ago, and content has just changed": {
			both(change, restarted(3*time.Second, 1)),
			Decision{State: Settling, Reason: "SourceChanged", Trigger: "Secret/db", RecheckAt: at(time.Second), Stale: true, WrittenAt: at(0),
				Message: "Secret/db has changed. The workload will be restarted once the content has not changed for 1s."},
		},
		"restarted again and again": {
			both(changeEarlier, restarted(30*time.Second, 3)),
			Decision{State: Pending, Reason: "MinInterval", Trigger: "Secret/db", RecheckAt: at(10 * time.Second), Stale: true, WrittenAt: at(-10 * time.Second),
				Message: "Secret/db has changed. The workload will be restarted at 2026-03-01T12:01:10Z, because it was restarted recently."},
		},
		"the interval is over: due when it ended, not when content had settled": {
			both(changeEarlier, restarted(15*time.Second, 1)),
			Decision{State: Pending, Reason: "SourceChanged", Action: RollOut, Trigger: "Secret/db", Stale: true, WrittenAt: at(-10 * time.Second), DueAt: at(-5 * time.Second),
				Message: "Secret/db has changed. The workload is being restarted."},
		},
		"the time of the last restart is invalid: it does not hold anything up": {
			both(changeEarlier, restarted(-1000*time.Hour, 1)),
			Decision{State: Pending, Reason: "SourceChanged", Action: RollOut, Trigger: "Secret/db", Stale: true, WrittenAt: at(-10 * time.Second), DueAt: at(-9 * time.Second),
				Message: "Secret/db has changed. The workload is being restarted."},
		},
		"paused": {
			both(changeEarlier, status(func(d *appsv1.Deployment) { d.Spec.Paused = true })),
			Decision{State: Blocked, Reason: "Paused", Trigger: "Secret/db", Stale: true, WrittenAt: at(-10 * time.Second),
				Message: "Secret/db has changed. The Deployment is paused; it will restart when it is resumed."},
		},
		"paused, without a change": {
			status(func(d *appsv1.Deployment) { d.Spec.Paused = true }),
			Decision{State: InSync, Reason: "ContentApplied", Message: "The pods run with the current content. The next change restarts them."},
		},
		"changed while no process watched": {
			func(x *world) { x.away(func() { change(x) }); x.tick(time.Second) },
			Decision{State: Pending, Reason: "SourceChanged", Action: RollOut, Trigger: "Secret/db", Stale: true, WrittenAt: at(0),
				Message: "Secret/db has changed. The workload is being restarted."},
		},
		"changed while no process watched, and has to settle all the same": {
			func(x *world) { x.away(func() { change(x) }) },
			Decision{State: Settling, Reason: "SourceChanged", Trigger: "Secret/db", Stale: true, WrittenAt: at(0), RecheckAt: at(time.Second),
				Message: "Secret/db has changed. The workload will be restarted once the content has not changed for 1s."},
		},
		"changed while no process watched, and so has the template": {
			func(x *world) {
				x.away(func() {
					change(x)
					x.tick(time.Second)
					x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "app:2" })
				})
			},
			Decision{State: Pending, Reason: "Verifying", Action: Verify, Trigger: "Secret/db", Stale: true, WrittenAt: at(0),
				Message: "Secret/db has changed, and so has the pod template. Checking which changed first."},
		},
		"only the hash is left, and it is another": {
			func(x *world) {
				x.annotate(AppliedSourcesAnnotation, "")
				x.away(func() { change(x) })
				x.tick(time.Second)
			},
			Decision{State: Pending, Reason: "SourceChanged", Action: RollOut, Trigger: TriggerUnknown, Stale: true,
				Message: "Its content has changed. The workload is being restarted."},
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
			Decision{State: Failed, Reason: "ProgressDeadlineExceeded", Message: "The rollout is not progressing: 1 of 3 pods are new and the progress deadline has passed."},
		},
		"a change while it rolls out": {
			both(changeEarlier, status(func(d *appsv1.Deployment) { replicas(d, 3) })),
			Decision{State: Pending, Reason: "SourceChanged", Action: RollOut, Trigger: "Secret/db", Stale: true, WrittenAt: at(-10 * time.Second), DueAt: at(-9 * time.Second),
				Message: "Secret/db has changed. The workload is being restarted."},
		},
		"pods are being evicted": {
			func(x *world) {
				x.annotate(RecreatingAnnotation, "2026-03-01T12:00:00Z", StrategyAnnotation, "recreate")
			},
			Decision{State: RollingOut, Reason: ReasonRecreating, Action: Continue, Message: "The pods are being evicted one by one, as PodDisruptionBudgets allow."},
		},
		"pods were being evicted, and the strategy is another: those that are left must go too": {
			func(x *world) { x.annotate(RecreatingAnnotation, "2026-03-01T12:00:00Z") },
			Decision{State: Pending, Reason: "StrategyChanged", Action: Continue, Trigger: TriggerUnknown, Stale: true,
				Message: "The strategy was changed while pods were being evicted. If any of them is left, the workload will be restarted."},
		},
		"the same, and the Deployment is paused": {
			func(x *world) {
				x.annotate(RecreatingAnnotation, "2026-03-01T12:00:00Z")
				x.edit(func(d *appsv1.Deployment) { d.Spec.Paused = true })
			},
			Decision{State: Blocked, Reason: "Paused", Trigger: TriggerUnknown, Stale: true,
				Message: "The strategy was changed while pods were being evicted. The Deployment is paused; it will restart when it is resumed."},
		},
		"pods were being evicted, and the workload has opted out: it is not known what is left": {
			func(x *world) {
				x.annotate(RecreatingAnnotation, "2026-03-01T12:00:00Z", StrategyAnnotation, "recreate", ReloadAnnotation, "off")
			},
			Decision{State: Unmanaged, Reason: "NotOptedIn", Action: Abandon, Message: "Changes do not restart this workload automatically; a Reload does."},
		},
		"nothing restarts it, though it has opted in": {
			func(x *world) { x.annotate(ReloadAnnotation, "listed"); x.act() },
			Decision{State: InSync, Reason: "NothingTriggers", Message: "No ConfigMap or Secret restarts this workload automatically; status.sources says why."},
		},
		"pods are being evicted, and the rollout fails: that goes on": {
			func(x *world) {
				x.annotate(RecreatingAnnotation, "2026-03-01T12:00:00Z", StrategyAnnotation, "recreate")
				x.edit(func(d *appsv1.Deployment) { d.Generation = 2 })
			},
			Decision{State: RollingOut, Reason: ReasonRecreating, Action: Continue, Message: "The pods are being evicted one by one, as PodDisruptionBudgets allow."},
		},
		"pods are being evicted, and the record is gone": {
			func(x *world) {
				x.annotate(RecreatingAnnotation, "2026-03-01T12:00:00Z", StrategyAnnotation, "recreate", ConfigHashAnnotation, "")
			},
			Decision{State: RollingOut, Reason: ReasonRecreating, Action: WriteBaseline, Message: "The pods are being evicted one by one, as PodDisruptionBudgets allow."},
		},
		"pods are being evicted, and a source is missing: their heirs could not start": {
			func(x *world) {
				x.annotate(RecreatingAnnotation, "2026-03-01T12:00:00Z")
				x.remove(dependency.Secret, "db")
			},
			Decision{State: Blocked, Reason: ReasonSourceMissing, Stale: true, Message: "Secret db is missing: new pods cannot start. The workload will not be restarted until this is fixed."},
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
			Message: "Secret gone is missing: the next run cannot start until this is fixed."}},
		{dependency.CronJob, map[string]string{ReloadAnnotation: "nope"}, Decision{State: Blocked, Reason: ReasonInvalidAnnotation,
			Message: `The annotation configdep.io/reload has the value "nope": allowed are auto, matched, listed, off. Automatic restarts are off until this is fixed.`}},
		{dependency.CronJob, nil, Decision{State: Unmanaged, Reason: "NextRunReadsContent",
			Message: "No restart is needed: the next run of the CronJob reads the current content."}},
		{dependency.Job, map[string]string{ReloadAnnotation: "auto"}, Decision{State: Unmanaged, Reason: "KindNotReloaded",
			Message: "It is never restarted: a Job has no rollout."}},
		{dependency.Pod, map[string]string{ReloadAnnotation: "auto"}, Decision{State: Unmanaged, Reason: "KindNotReloaded",
			Message: "It is never restarted: a Pod has no rollout."}},
		{dependency.ReplicaSet, map[string]string{SettleAnnotation: "soon", ReloadAnnotation: "auto"}, Decision{State: Unmanaged, Reason: "KindNotReloaded",
			Message: "It is never restarted: a ReplicaSet has no rollout."}},
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
