// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/policy"
)

// at returns a time relative to the beginning of the world.
func at(d time.Duration) time.Time { return epoch.Add(time.Minute + d) }

// TestDecide_WhatAWorkloadSays covers every state and reason, with the whole decision. The workload
// was adopted a minute ago, and each event happens now.
func TestDecide_WhatAWorkloadSays(t *testing.T) {
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
			last := policy.LastReload{Time: when, Trigger: "Secret/db", Automatic: &when, Streak: streak}
			x.annotate(policy.LastReloadAnnotation, last.JSON())
		}
	}
	replicas := func(d *appsv1.Deployment, n int32) { d.Spec.Replicas = &n }
	for name, tc := range map[string]struct {
		do   func(*world)
		want policy.Decision
	}{
		"not opted in": {
			func(x *world) { x.annotate(policy.ReloadAnnotation, "") },
			policy.Decision{State: policy.Unmanaged, Reason: "NotOptedIn", Message: "Automatic restarts are off. Create a Reload to restart the workload."},
		},
		"opted out, with a change": {
			both(change, func(x *world) { x.annotate(policy.ReloadAnnotation, "off") }),
			policy.Decision{State: policy.Unmanaged, Reason: "NotOptedIn", Message: "Automatic restarts are off. Create a Reload to restart the workload."},
		},
		"in sync": {
			func(*world) {},
			policy.Decision{State: policy.InSync, Reason: "ContentApplied", Message: "The pods run with the current content. The next change restarts them."},
		},
		"in sync, restarted before": {
			restarted(time.Second, 3),
			policy.Decision{State: policy.InSync, Reason: "ContentApplied", Trigger: "Secret/db", Message: "The pods run with the current content. The next change restarts them."},
		},
		"nothing recorded": {
			func(x *world) { x.annotate(policy.ConfigHashAnnotation, "garbage") },
			policy.Decision{State: policy.Pending, Reason: policy.ReasonNotRecorded, Action: policy.WriteBaseline,
				Message: "The content that the pods run with has not been recorded yet. Recording it restarts nothing; later changes restart the workload."},
		},
		"the record was removed": {
			func(x *world) { x.annotate(policy.ConfigHashAnnotation, "", policy.AppliedSourcesAnnotation, "") },
			policy.Decision{State: policy.InSync, Reason: policy.ReasonRecordRemoved, Action: policy.WriteBaseline,
				Message: "The pods run with the current content, but another client removed configdep's annotations. They will be written again, with increasing delays if this happens repeatedly."},
		},
		"an annotation is invalid": {
			func(x *world) { x.annotate(policy.SettleAnnotation, "soon") },
			policy.Decision{State: policy.Blocked, Reason: policy.ReasonInvalidAnnotation, Message: `Invalid annotation configdep.io/settle="soon": must be a duration such as "0", "500ms", "30s" or "5m". Automatic restarts are on hold until this is fixed.`},
		},
		"two annotations are invalid, and content has changed": {
			both(changeEarlier, func(x *world) {
				x.annotate(policy.StrategyAnnotation, "magic")
				x.namespaceAnnotations(map[string]string{policy.LiveVolumesAnnotation: "maybe"})
			}),
			policy.Decision{State: policy.Blocked, Reason: policy.ReasonInvalidAnnotation, Message: `Invalid annotation configdep.io/strategy="magic": must be one of annotation, env-var, agent, recreate, in-place; invalid annotation configdep.io/live-volumes="maybe" on the Namespace: must be "true" or "false". Automatic restarts are on hold until this is fixed.`},
		},
		"the mode is invalid, which does not opt out": {
			func(x *world) { x.annotate(policy.ReloadAnnotation, "true") },
			policy.Decision{State: policy.Blocked, Reason: policy.ReasonInvalidAnnotation, Message: `Invalid annotation configdep.io/reload="true": must be one of auto, matched, listed, off. Automatic restarts are on hold until this is fixed.`},
		},
		"a source is missing": {
			func(x *world) { x.remove(dependency.Secret, "db") },
			policy.Decision{State: policy.Blocked, Reason: policy.ReasonSourceMissing, Stale: true, Message: "Secret db is missing: new pods cannot start. Automatic restarts are on hold until this is fixed."},
		},
		"a source is missing, and no pods run": {
			func(x *world) {
				x.edit(func(d *appsv1.Deployment) {
					replicas(d, 0)
					d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation}
				})
				x.remove(dependency.Secret, "db")
			},
			policy.Decision{State: policy.Blocked, Reason: policy.ReasonSourceMissing, Message: "Secret db is missing: new pods cannot start. Automatic restarts are on hold until this is fixed."},
		},
		"a key is missing": {
			func(x *world) { x.set(secret("db", "user", "u")) },
			policy.Decision{State: policy.Blocked, Reason: policy.ReasonKeyMissing, Stale: true, Message: "Secret db lacks the key password: new pods cannot start. Automatic restarts are on hold until this is fixed."},
		},
		"a source and a key are missing, and something has changed": {
			func(x *world) {
				x.set(secret("db", "user", "u"))
				x.remove(dependency.ConfigMap, "settings")
			},
			policy.Decision{State: policy.Blocked, Reason: policy.ReasonSourceMissing, Stale: true, Message: "ConfigMap settings is missing; Secret db lacks the key password: new pods cannot start. Automatic restarts are on hold until this is fixed."},
		},
		"a source that does not trigger is missing: pods still do not start": {
			both(func(x *world) { x.annotate(policy.ExcludeAnnotation, "secret/db"); x.act() }, func(x *world) { x.remove(dependency.Secret, "db") }),
			policy.Decision{State: policy.Blocked, Reason: policy.ReasonSourceMissing, Message: "Secret db is missing: new pods cannot start. Automatic restarts are on hold until this is fixed."},
		},

		"content has just changed": {
			change,
			policy.Decision{State: policy.Settling, Reason: "SourceChanged", Trigger: "Secret/db", RecheckAt: at(time.Second), Stale: true, WrittenAt: at(0),
				Message: "Secret/db has changed. A restart is due once the content has not changed for 1s."},
		},
		"content has just changed by the client of the template": {
			both(func(x *world) {
				x.defaults.ReleaseSettle = 30 * time.Second
				x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "app:2" })
			}, change),
			policy.Decision{State: policy.Settling, Reason: "SourceChanged", Trigger: "Secret/db", RecheckAt: at(30 * time.Second), Stale: true, WrittenAt: at(0),
				Message: "Secret/db has changed. The client that changed it also writes the pod template, so a release may be under way: " +
					"a restart is due once that client has changed no ConfigMap, Secret or pod template in the namespace for 30s."},
		},
		"content has just changed, settle 0": {
			both(func(x *world) { x.annotate(policy.SettleAnnotation, "0") }, change),
			policy.Decision{State: policy.Pending, Reason: "SourceChanged", Action: policy.RollOut, Trigger: "Secret/db", Stale: true, WrittenAt: at(0), DueAt: at(0),
				Message: "Secret/db has changed. A restart is due."},
		},
		"content has settled": {
			changeEarlier,
			policy.Decision{State: policy.Pending, Reason: "SourceChanged", Action: policy.RollOut, Trigger: "Secret/db", Stale: true, WrittenAt: at(-10 * time.Second), DueAt: at(-9 * time.Second),
				Message: "Secret/db has changed. A restart is due."},
		},
		"two sources have changed, the later one just now": {
			both(changeEarlier, func(x *world) { x.set(configMap("settings", "a", "2")) }),
			policy.Decision{State: policy.Settling, Reason: "SourceChanged", Trigger: "ConfigMap/settings", RecheckAt: at(time.Second), Stale: true,
				Message: "ConfigMap/settings and Secret/db have changed. A restart is due once the content has not changed for 1s."},
		},
		"restarted a moment ago": {
			both(changeEarlier, restarted(3*time.Second, 1)),
			policy.Decision{State: policy.Pending, Reason: "MinInterval", Trigger: "Secret/db", RecheckAt: at(7 * time.Second), Stale: true, WrittenAt: at(-10 * time.Second),
				Message: "Secret/db has changed. A restart is due at 2026-03-01T12:01:07Z: the minimum interval between automatic restarts is 10s."},
		},
		"restarted a moment ago, and content has just changed": {
			both(change, restarted(3*time.Second, 1)),
			policy.Decision{State: policy.Settling, Reason: "SourceChanged", Trigger: "Secret/db", RecheckAt: at(time.Second), Stale: true, WrittenAt: at(0),
				Message: "Secret/db has changed. A restart is due once the content has not changed for 1s."},
		},
		"restarted repeatedly": {
			both(changeEarlier, restarted(30*time.Second, 3)),
			policy.Decision{State: policy.Pending, Reason: "MinInterval", Trigger: "Secret/db", RecheckAt: at(10 * time.Second), Stale: true, WrittenAt: at(-10 * time.Second),
				Message: "Secret/db has changed. A restart is due at 2026-03-01T12:01:10Z: the minimum interval of 10s has grown to 40s after 3 restarts in close succession."},
		},
		"the interval is over: due since its end, not since content settled": {
			both(changeEarlier, restarted(15*time.Second, 1)),
			policy.Decision{State: policy.Pending, Reason: "SourceChanged", Action: policy.RollOut, Trigger: "Secret/db", Stale: true, WrittenAt: at(-10 * time.Second), DueAt: at(-5 * time.Second),
				Message: "Secret/db has changed. A restart is due."},
		},
		"the time of the last restart is invalid: it delays nothing": {
			both(changeEarlier, restarted(-1000*time.Hour, 1)),
			policy.Decision{State: policy.Pending, Reason: "SourceChanged", Action: policy.RollOut, Trigger: "Secret/db", Stale: true, WrittenAt: at(-10 * time.Second), DueAt: at(-9 * time.Second),
				Message: "Secret/db has changed. A restart is due."},
		},
		"content has settled, and another client has removed the record": {
			func(x *world) {
				x.annotate(policy.ConfigHashAnnotation, "", policy.AppliedSourcesAnnotation, "")
				changeEarlier(x)
			},
			policy.Decision{State: policy.Pending, Reason: "SourceChanged", Action: policy.RollOut, Trigger: "Secret/db", Stale: true, DueAt: at(-9 * time.Second),
				Message: "Secret/db has changed. A restart is due. It may be delayed, because another client removed configdep's annotations."},
		},
		"paused": {
			both(changeEarlier, status(func(d *appsv1.Deployment) { d.Spec.Paused = true })),
			policy.Decision{State: policy.Blocked, Reason: "Paused", Trigger: "Secret/db", Stale: true, WrittenAt: at(-10 * time.Second),
				Message: "Secret/db has changed. The restart is on hold until the Deployment is resumed."},
		},
		"paused, without a change": {
			status(func(d *appsv1.Deployment) { d.Spec.Paused = true }),
			policy.Decision{State: policy.InSync, Reason: "ContentApplied", Message: "The pods run with the current content. The next change restarts them."},
		},
		"changed while no process watched": {
			func(x *world) { x.away(func() { change(x) }); x.tick(time.Second) },
			policy.Decision{State: policy.Pending, Reason: "SourceChanged", Action: policy.RollOut, Trigger: "Secret/db", Stale: true, WrittenAt: at(0),
				Message: "Secret/db has changed. A restart is due."},
		},
		"changed while no process watched, and still has to settle": {
			func(x *world) { x.away(func() { change(x) }) },
			policy.Decision{State: policy.Settling, Reason: "SourceChanged", Trigger: "Secret/db", Stale: true, WrittenAt: at(0), RecheckAt: at(time.Second),
				Message: "Secret/db has changed. A restart is due once the content has not changed for 1s."},
		},
		"changed while no process watched, and so has the template": {
			func(x *world) {
				x.away(func() {
					change(x)
					x.tick(time.Second)
					x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "app:2" })
				})
			},
			policy.Decision{State: policy.Pending, Reason: "Verifying", Action: policy.Verify, Trigger: "Secret/db", Stale: true, WrittenAt: at(0),
				Message: "Secret/db has changed, and so has the pod template. The leader is checking which changed first to decide whether a restart is due."},
		},
		"only the hash is left, and it differs": {
			func(x *world) {
				x.annotate(policy.AppliedSourcesAnnotation, "")
				x.away(func() { change(x) })
				x.tick(time.Second)
			},
			policy.Decision{State: policy.Pending, Reason: "SourceChanged", Action: policy.RollOut, Trigger: policy.TriggerUnknown, Stale: true,
				Message: "Its content has changed. A restart is due."},
		},

		"rolling out, not observed by its controller": {
			status(func(d *appsv1.Deployment) { d.Generation = 2 }),
			policy.Decision{State: policy.RollingOut, Reason: "NotObserved", Message: "The rollout is not complete: its controller has not observed the latest change of the workload yet."},
		},
		"rolling out": {
			both(restarted(time.Second, 1), status(func(d *appsv1.Deployment) { replicas(d, 3) })),
			policy.Decision{State: policy.RollingOut, Reason: "PodsUpdating", Trigger: "Secret/db", Message: "The rollout is not complete: 1 of 3 pods is up to date."},
		},
		"held": {
			status(func(d *appsv1.Deployment) { replicas(d, 3); d.Spec.Paused = true }),
			policy.Decision{State: policy.RollingOut, Reason: "Paused", Message: "The rollout is waiting for a user: 1 of 3 pods is up to date, and the Deployment is paused."},
		},
		"failed": {
			status(func(d *appsv1.Deployment) {
				replicas(d, 3)
				d.Status.Conditions = []appsv1.DeploymentCondition{{
					Type: appsv1.DeploymentProgressing, Status: corev1.ConditionFalse, Reason: "ProgressDeadlineExceeded",
				}}
			}),
			policy.Decision{State: policy.Failed, Reason: "ProgressDeadlineExceeded", Message: "The rollout is not progressing: 1 of 3 pods is up to date, and the progress deadline has passed."},
		},
		"a change during a rollout": {
			both(changeEarlier, status(func(d *appsv1.Deployment) { replicas(d, 3) })),
			policy.Decision{State: policy.Pending, Reason: "SourceChanged", Action: policy.RollOut, Trigger: "Secret/db", Stale: true, WrittenAt: at(-10 * time.Second), DueAt: at(-9 * time.Second),
				Message: "Secret/db has changed. A restart is due."},
		},
		"pods are being evicted": {
			func(x *world) {
				x.annotate(policy.RecreatingAnnotation, "2026-03-01T12:00:00Z", policy.StrategyAnnotation, "recreate")
			},
			policy.Decision{State: policy.RollingOut, Reason: policy.ReasonRecreating, Action: policy.Continue, Message: "Pods with old content are evicted one by one, as PodDisruptionBudgets allow. If that takes long, the event ConfigReloadWaiting says why."},
		},
		"pods were being evicted, and the strategy was changed: the other pods must be evicted too": {
			func(x *world) { x.annotate(policy.RecreatingAnnotation, "2026-03-01T12:00:00Z") },
			policy.Decision{State: policy.Pending, Reason: "StrategyChanged", Action: policy.Continue, Trigger: policy.TriggerUnknown, Stale: true,
				Message: "The strategy was changed while pods were being evicted. If any of these pods remain, a restart is due."},
		},
		"pods were being evicted, the strategy was changed, and the Deployment is paused": {
			func(x *world) {
				x.annotate(policy.RecreatingAnnotation, "2026-03-01T12:00:00Z")
				x.edit(func(d *appsv1.Deployment) { d.Spec.Paused = true })
			},
			policy.Decision{State: policy.Blocked, Reason: "Paused", Trigger: policy.TriggerUnknown, Stale: true,
				Message: "The strategy was changed while pods were being evicted. If any of these pods remain, the restart is on hold until the Deployment is resumed."},
		},
		"pods were being evicted, and the workload has opted out: the remaining pods are not known": {
			func(x *world) {
				x.annotate(policy.RecreatingAnnotation, "2026-03-01T12:00:00Z", policy.StrategyAnnotation, "recreate", policy.ReloadAnnotation, "off")
			},
			policy.Decision{State: policy.Unmanaged, Reason: "NotOptedIn", Action: policy.Abandon, Message: "Automatic restarts are off. Create a Reload to restart the workload."},
		},
		"nothing triggers, though it has opted in": {
			func(x *world) { x.annotate(policy.ReloadAnnotation, "listed"); x.act() },
			policy.Decision{State: policy.InSync, Reason: "NothingTriggers", Message: "No ConfigMap or Secret restarts this workload automatically; spec.sources says why."},
		},
		"pods are being evicted, and the rollout fails: the eviction continues": {
			func(x *world) {
				x.annotate(policy.RecreatingAnnotation, "2026-03-01T12:00:00Z", policy.StrategyAnnotation, "recreate")
				x.edit(func(d *appsv1.Deployment) { d.Generation = 2 })
			},
			policy.Decision{State: policy.RollingOut, Reason: policy.ReasonRecreating, Action: policy.Continue, Message: "Pods with old content are evicted one by one, as PodDisruptionBudgets allow. If that takes long, the event ConfigReloadWaiting says why."},
		},
		"pods are being evicted, and the record was removed": {
			func(x *world) {
				x.annotate(policy.RecreatingAnnotation, "2026-03-01T12:00:00Z", policy.StrategyAnnotation, "recreate", policy.ConfigHashAnnotation, "")
			},
			policy.Decision{State: policy.RollingOut, Reason: policy.ReasonRecreating, Action: policy.WriteBaseline, Message: "Pods with old content are evicted one by one, as PodDisruptionBudgets allow. If that takes long, the event ConfigReloadWaiting says why."},
		},
		"pods are being evicted, and a source is missing: new pods could not start": {
			func(x *world) {
				x.annotate(policy.RecreatingAnnotation, "2026-03-01T12:00:00Z")
				x.remove(dependency.Secret, "db")
			},
			policy.Decision{State: policy.Blocked, Reason: policy.ReasonSourceMissing, Stale: true, Message: "Secret db is missing: new pods cannot start. Automatic restarts are on hold until this is fixed."},
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, podOf(env(dependency.Secret, "db", "password"), envFrom(dependency.ConfigMap, "settings")),
				secret("db", "password", "1"), configMap("settings", "a", "1", "b", "1"))
			x.adopt()
			tc.do(x)
			got := x.evaluate().Decide(policy.Observed{Now: x.now})
			// WrittenAt is only for Verify, which has its own tests.
			ignore := cmpopts.IgnoreFields(policy.Decision{}, "WrittenAt", "Because", "KnownBy", "Timed", "Provisional")
			if tc.want.Action == policy.Verify {
				ignore = cmpopts.IgnoreFields(policy.Decision{}, "Because", "KnownBy", "Timed", "Provisional")
			}
			if diff := cmp.Diff(tc.want, got, ignore); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
			if again := x.evaluate().Decide(policy.Observed{Now: x.now}); !cmp.Equal(got, again) {
				t.Errorf("a second decision differs (-first +second):\n%s", cmp.Diff(got, again))
			}
			if !got.RecheckAt.IsZero() && !got.RecheckAt.After(x.now) {
				t.Errorf("RecheckAt = %v, want a time after now, %v", got.RecheckAt, x.now)
			}
		})
	}
}

func TestDecide_KindsWithoutARolloutAreNeverRestarted(t *testing.T) {
	for _, tc := range []struct {
		kind        dependency.WorkloadKind
		annotations map[string]string
		want        policy.Decision
	}{
		{kind.CronJob, map[string]string{policy.ReloadAnnotation: "auto", policy.ExcludeAnnotation: "secret/gone"}, policy.Decision{State: policy.Blocked, Reason: policy.ReasonSourceMissing,
			Message: "Secret gone is missing: the next run cannot start until this is fixed."}},
		{kind.CronJob, map[string]string{policy.ReloadAnnotation: "nope"}, policy.Decision{State: policy.Blocked, Reason: policy.ReasonInvalidAnnotation,
			Message: `Invalid annotation configdep.io/reload="nope": must be one of auto, matched, listed, off.`}},
		{kind.CronJob, nil, policy.Decision{State: policy.Unmanaged, Reason: "NextRunReadsContent",
			Message: "No restart is needed: the next run of the CronJob reads the current content."}},
		{kind.Job, map[string]string{policy.ReloadAnnotation: "auto"}, policy.Decision{State: policy.Unmanaged, Reason: "KindNotReloaded",
			Message: "configdep does not restart it: a Job has no rollout."}},
		{kind.Pod, map[string]string{policy.ReloadAnnotation: "auto"}, policy.Decision{State: policy.Unmanaged, Reason: "KindNotReloaded",
			Message: "configdep does not restart it: a Pod has no rollout."}},
		{kind.ReplicaSet, map[string]string{policy.SettleAnnotation: "soon", policy.ReloadAnnotation: "auto"}, policy.Decision{State: policy.Unmanaged, Reason: "KindNotReloaded",
			Message: "configdep does not restart it: a ReplicaSet has no rollout."}},
	} {
		x := newWorld(t, podOf())
		w := &dependency.Workload{
			WorkloadKey: dependency.WorkloadKey{Kind: tc.kind, Namespace: namespace, Name: "once"}, Traits: kind.Table(nil).Of(tc.kind).Traits,
			Annotations: tc.annotations, References: []dependency.Reference{{Kind: dependency.Secret, Name: "gone", Uses: []dependency.Use{{Type: dependency.EnvFrom}}}},
		}
		got := x.known().Evaluate(w).Decide(policy.Observed{Now: epoch})
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s with %v (-want +got):\n%s", tc.kind, tc.annotations, diff)
		}
	}
}

func TestDecide_BecauseNamesAllThatHasChanged(t *testing.T) {
	x := newWorld(t, podOf(env(dependency.Secret, "db", "password"), envFrom(dependency.ConfigMap, "settings")),
		secret("db", "password", "1"), configMap("settings", "a", "1"))
	x.adopt()
	x.set(secret("db", "password", "2"))
	x.set(configMap("settings", "a", "2"))
	x.tick(time.Minute)
	if d := x.decide(); d.Because != "ConfigMap/settings and Secret/db have changed" || d.Trigger != "ConfigMap/settings" {
		t.Errorf("decision = %+v, want both sources in Because", d)
	}
}
