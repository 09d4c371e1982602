// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
)

// TestDecide_UndoOfARecordThatSaysMixed: kubectl rollout undo restores the annotations of the workload
// together with its template. New pods read the current content, whatever the record says about earlier
// pods; but in the middle of a rollout, some pods of the template are still running.
func TestDecide_UndoOfARecordThatSaysMixed(t *testing.T) {
	for name, tt := range map[string]struct {
		observed int64 // the generation that its controller has observed; 2: the rollout is complete
		want     policy.State
	}{
		"after the rollout": {2, policy.InSync},
		"in the middle":     {1, policy.Pending},
	} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1"))
			x.adopt()
			patch, err := x.evaluate().MixedPatch([]string{"Secret/db"})
			record, _ := annotationsOf(t, patch, err)
			x.edit(func(d *appsv1.Deployment) {
				d.Spec.Template.Spec.Containers[0].Image = "app:2"
				d.Generation, d.Status.ObservedGeneration = 2, tt.observed
			})
			x.tick(time.Minute)
			x.set(secret("db", "password", "2"))
			x.tick(time.Minute)
			x.edit(func(d *appsv1.Deployment) {
				d.Spec.Template.Spec.Containers[0].Image = ""
				d.Generation, d.Status.ObservedGeneration = 3, 3
				d.Annotations[policy.ConfigHashAnnotation], d.Annotations[policy.AppliedSourcesAnnotation] = record["config-hash"], record["applied-sources"]
			})
			x.tick(time.Minute)
			if d := x.decide(); d.State != tt.want || (d.Action == policy.WriteBaseline) != (tt.want == policy.InSync) {
				t.Errorf("decision = %+v, want state %s", d, tt.want)
			}
		})
	}
}

// A source that counts by its name is deleted, and then the name is replaced by a glob that matches
// it: the deletion still counts as a change.
func TestDecide_GlobThatNamesWhatHasGone(t *testing.T) {
	for name, tt := range map[string]struct {
		before, glob string
		want         outcome
	}{
		"the source counted":      {"secret/feature-1", "secret/feature-*", rollOut("Secret/feature-*")},
		"another source counted":  {"secret/other", "secret/feature-*", baseline},
		"the glob does not match": {"secret/feature-1", "secret/other-*", baseline},
	} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1"), secret("feature-1", "a", "1"), secret("other", "a", "1"))
			x.annotate(policy.SourcesAnnotation, tt.before)
			x.adopt()
			x.tick(time.Second)
			x.remove(dependency.Secret, "feature-1")
			x.tick(time.Second)
			x.annotate(policy.SourcesAnnotation, tt.glob)
			x.tick(time.Minute)
			if diff := cmp.Diff(tt.want, outcomeOf(x.decide())); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}

// TestDecide_UndoOptsInAgain: if a workload opts in with a write that contains its record, the webhook
// has adopted earlier changes. But kubectl rollout undo also restores the pod template, and a record of
// pods that are still running; and with two revision counters, the order is not known.
func TestDecide_UndoOptsInAgain(t *testing.T) {
	image := func(image string) func(*appsv1.Deployment) {
		return func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = image }
	}
	for name, tt := range map[string]struct {
		several bool // revision counters
		paused  bool
		back    func(*appsv1.Deployment)
		want    policy.State
	}{
		"by the webhook":                       {false, false, func(*appsv1.Deployment) {}, policy.InSync},
		"by the webhook, with two counters":    {true, false, func(*appsv1.Deployment) {}, policy.Pending},
		"by undo, with two counters":           {true, false, image("app:1"), policy.Pending},
		"by undo, while its rollout is paused": {false, true, image("app:1"), policy.Blocked},
	} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1"))
			if tt.several {
				x.SeparateCounters()
			}
			x.edit(func(d *appsv1.Deployment) { image("app:1")(d); d.Spec.Paused = tt.paused })
			x.adopt()
			annotations := x.deployment.Annotations
			x.edit(func(d *appsv1.Deployment) { image("app:2")(d); d.Annotations = map[string]string{} })
			x.tick(time.Minute)
			x.set(secret("db", "password", "2"))
			x.edit(func(d *appsv1.Deployment) { tt.back(d); d.Annotations = annotations })
			x.tick(time.Minute)
			if d := x.decide(); d.State != tt.want {
				t.Errorf("decision = %+v, want state %s", d, tt.want)
			}
		})
	}
}

// The record of a restart that another client undoes in the middle of its rollout does not apply to the pods that were never
// replaced, even if this process did not see their content change.
func TestDecide_RestartThatIsUndone(t *testing.T) {
	observed := func(observed int64) func(*world) { // of generation 2
		return func(x *world) {
			x.edit(func(d *appsv1.Deployment) { d.Generation, d.Status.ObservedGeneration = 2, observed })
		}
	}
	strip := func(x *world) {
		x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Annotations = nil })
	}
	stripAll := func(x *world) {
		x.edit(func(d *appsv1.Deployment) {
			d.Spec.Template.Annotations = nil
			for _, key := range []string{policy.ConfigHashAnnotation, policy.AppliedSourcesAnnotation, policy.LastReloadAnnotation} {
				delete(d.Annotations, key)
			}
		})
	}
	var changed time.Time
	change := func(x *world) {
		changed = x.now
		x.set(secret("db", "password", "2", "user", "1"))
	}
	hashAlone := func(x *world) { x.annotate(policy.AppliedSourcesAnnotation, ""); x.restart() }
	rekey := func(x *world) { x.rekey(x.key+1, func(*world) {}, func(*world) {}) }
	hash := ""
	bare := func(x *world) { // the template and the workload keep only the hash that they have
		if hash == "" {
			hash = x.evaluate().Hash
			x.annotate(policy.ConfigHashAnnotation, "", policy.AppliedSourcesAnnotation, "")
		}
		x.edit(func(d *appsv1.Deployment) {
			d.Spec.Template.Annotations = map[string]string{policy.ConfigHashAnnotation: hash}
		})
		x.restart()
	}
	changeUnseen := func(x *world) { x.away(func() { change(x) }) }
	restart := func(x *world) {
		x.tick(time.Minute)
		if d := x.act(); d.Action != policy.RollOut {
			x.t.Fatalf("decision = %+v, want action RollOut", d)
		}
	}
	request := func(x *world) {
		e := x.evaluate()
		x.patch(e.Policy.RestartPatch(e.Workload, &policy.Restart{Present: e.Present(), Last: policy.NewRequestedReload(nil, x.now, "admin", ""), Always: true}))
	}
	// In these cases, it is not known which source had changed, or which keys existed.
	unknown := []string{"where a hash alone had been recorded", "with another key since", "of content that had not changed, with another key since"}
	cutOff := func(fs ...func(*world)) func(*world) {
		return func(x *world) { x.broken(func() { x.restart(); both(fs...)(x) }) }
	}
	for name, tt := range map[string]struct {
		do   func(*world)
		want outcome
	}{
		"in the middle of its rollout":                       {both(changeUnseen, observed(1), restart, strip), inspect("Secret/db")},
		"after the second restart":                           {both(changeUnseen, observed(1), restart, request, strip), inspect("Secret/db")},
		"in the middle of its rollout, and inspected":        {both(changeUnseen, observed(1), restart, strip, func(x *world) { x.act() }), nothing},
		"in the middle of its rollout, with all annotations": {both(changeUnseen, observed(1), restart, stripAll), inspect("Secret/db")},
		"after its rollout, with all annotations":            {both(changeUnseen, observed(1), restart, observed(2), stripAll), outcome{policy.Pending, "NotRecorded", policy.WriteBaseline, ""}},
		"after its rollout":                                  {both(changeUnseen, observed(1), restart, observed(2), strip), nothing},
		"of content that had not changed":                    {both(observed(1), request, strip), nothing},
		"unseen":                                             {cutOff(change, restart, strip), inspect("Secret/db")},
		"unseen, and inspected":                              {both(cutOff(change, restart, strip), func(x *world) { x.act() }), nothing},
		"unseen, of content that had not changed":            {cutOff(request, strip), nothing},
		"unseen, and again without a change":                 {both(cutOff(change, restart, strip), cutOff(request, strip)), inspect("Secret/db")},
		"unseen, and its pods are evicted": {
			both(func(x *world) { x.annotate(policy.StrategyAnnotation, "recreate") }, cutOff(change, restart)),
			outcome{policy.RollingOut, policy.ReasonRecreating, policy.Continue, "Secret/db"},
		},
		"unseen, and its pods have been evicted": {
			both(func(x *world) { x.annotate(policy.StrategyAnnotation, "recreate") },
				cutOff(change, restart, func(x *world) {
					x.patch(policy.BaselinePatch(x.workload(), x.evaluate().Present()))
					x.annotate(policy.RecreatingAnnotation, "")
				})),
			nothing,
		},
		"of a key that was removed": {
			both(func(x *world) { x.away(func() { x.set(secret("db", "password", "1")) }) }, observed(1), restart, strip), inspect("Secret/db"),
		},
		"unseen, where a hash alone was left": {
			both(bare, cutOff(change, request, strip, bare)), inspect("Secret/db"),
		},
		"unseen, where a hash alone was left, of content that had not changed": {both(bare, cutOff(request, strip, bare)), nothing},
		"where a hash alone had been recorded": {
			both(hashAlone, changeUnseen, observed(1), restart, strip), inspect("Secret/db"),
		},
		"where a hash alone had been recorded, of content that had not changed": {both(hashAlone, observed(1), request, strip), nothing},
		"with another key since":                                  {both(changeUnseen, observed(1), restart, rekey, strip), inspect("Secret/db")},
		"of content that had not changed, with another key since": {both(observed(1), request, rekey, strip), inspect("Secret/db")},
		"unseen, without a record before": {
			both(func(x *world) {
				x.annotate(policy.ConfigHashAnnotation, "", policy.AppliedSourcesAnnotation, "")
				x.restart()
			}, cutOff(change, request, strip)),
			inspect("Secret/db"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, podOf(envFrom(dependency.Secret, "db"), env(dependency.Secret, "other", "k")),
				secret("db", "password", "1", "user", "1"), secret("other", "k", "1"))
			x.adopt()
			hash, changed = "", time.Time{}
			tt.do(x)
			d := x.decide()
			for _, e := range d.Excursions {
				to, all := changed, slices.Contains(unknown, name)
				if to.IsZero() || all { // the removal of a key has no date
					to = x.workload().TemplateWritten
				}
				if e.ID != "Secret/db" && !all || e.ID == "Secret/db" && !e.To.Equal(to) {
					t.Errorf("excursion = %+v, want the end %v", e, to)
				}
			}
			got := outcomeOf(d)
			if got.Action == policy.None { // ignore the rollout and the last trigger
				got = nothing
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
