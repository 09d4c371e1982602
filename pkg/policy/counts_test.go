// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/ingest/ingesttest"
	"github.com/configdep/configdep/pkg/policy"
)

// A change of a source while it does not count restarts nothing when the source counts again;
// later changes do.
func TestDecide_SourceCountsAgain(t *testing.T) {
	const db = "Secret/db"
	put := func(value string, marks ...string) func(*world) {
		return func(x *world) { x.set(annotated(secret("db", "password", value), marks...)) }
	}
	annotate := func(pairs ...string) func(*world) {
		return func(x *world) { x.annotate(pairs...) }
	}
	inherit := func(pairs ...string) func(*world) {
		return func(x *world) {
			all := map[string]string{}
			for i := 0; i < len(pairs); i += 2 {
				all[pairs[i]] = pairs[i+1]
			}
			x.namespaceAnnotations(all)
		}
	}
	ignore, match := []string{policy.IgnoreAnnotation, "true"}, []string{policy.MatchAnnotation, "true"}
	for name, tt := range map[string]struct {
		first, out, change, back func(*world) // each is recorded before the next
		more                     func(*world) // together with back
		want                     outcome
	}{
		"a source was ignored": {
			out: put("1", ignore...), change: put("2", ignore...), back: put("2"), want: baseline,
		},
		"a source was ignored, and changes": {
			out: put("1", ignore...), change: put("2", ignore...), back: put("2"), more: put("3"), want: rollOut(db),
		},
		"a source did not match": {
			first: func(x *world) { x.annotate(policy.ReloadAnnotation, "matched"); put("1", match...)(x) },
			out:   put("1"), change: put("2"), back: put("2", match...), want: baseline,
		},
		"a source did not match, and changes": {
			first: func(x *world) { x.annotate(policy.ReloadAnnotation, "matched"); put("1", match...)(x) },
			out:   put("1"), change: put("2"), back: put("2", match...), more: put("3", match...), want: rollOut(db),
		},
		"a source was ignored, and changes; it also matches since then": {
			out: put("1", ignore...), change: put("2", ignore...), back: put("2"),
			more: func(x *world) { put("3")(x); put("3", match...)(x) }, want: rollOut(db),
		},
		"another source was excluded instead": {
			first: annotate(policy.ExcludeAnnotation, "secret/other"),
			out:   annotate(policy.ExcludeAnnotation, "secret/db"), change: put("2"), back: annotate(policy.ExcludeAnnotation, "secret/other"), want: baseline,
		},
		"the namespace had excluded a source": {
			out: inherit(policy.ExcludeAnnotation, "secret/db"), change: put("2"), back: inherit(), want: baseline,
		},
		"the namespace excludes another source instead": {
			out: inherit(policy.ExcludeAnnotation, "secret/db"), change: put("2"), back: inherit(policy.ExcludeAnnotation, "secret/other"), want: baseline,
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, podOf(envFrom(dependency.ConfigMap, "settings"), env(dependency.Secret, "db", "password")),
				configMap("settings", "a", "1"), secret("db", "password", "1"))
			if tt.first != nil {
				tt.first(x)
			}
			for _, step := range []func(*world){func(*world) {}, tt.out, tt.change} {
				step(x)
				x.tick(time.Minute)
				if d := x.act(); d.Action == policy.RollOut {
					t.Fatalf("a source that does not count restarts the workload: %+v", d)
				}
				x.tick(time.Minute)
			}
			tt.back(x)
			if tt.more != nil {
				x.tick(time.Second)
				tt.more(x)
			}
			x.tick(time.Minute)
			if diff := cmp.Diff(tt.want, outcomeOf(x.act())); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}

// Excursions have the period in which content was different, and the containers that read it.
func TestDecide_TellsExcursions(t *testing.T) {
	x := newWorld(t, podOf(env(dependency.Secret, "db", "password"), pullSecret("registry")), secret("db", "password", "1"), secret("registry", "a", "1"),
		secret("feature-1", "a", "1"), secret("feature-2", "a", "1"))
	x.annotate(policy.SourcesAnnotation, "secret/feature-*")
	x.adopt()
	start := x.now
	for _, value := range []string{"2", "3", "1"} {
		x.tick(10 * time.Second)
		x.set(secret("db", "password", value))
	}
	if diff := cmp.Diff([]policy.Excursion{
		{ID: "Secret/db", From: start.Add(10 * time.Second), To: start.Add(30 * time.Second), Containers: []string{"app"}, Witnessed: true},
	}, x.decide().Excursions, cmpopts.IgnoreUnexported(policy.Excursion{})); diff != "" {
		t.Errorf("excursions of a source (-want +got):\n%s", diff)
	}
	x.act()
	if d := x.decide(); d.Action != policy.None {
		t.Fatalf("once the pods were inspected: decision = %+v, want no action", d)
	}
	x.tick(time.Minute)
	x.set(secret("feature-2", "a", "2"))
	x.tick(10 * time.Second)
	x.set(secret("feature-2", "a", "1"))
	// For a glob, neither the containers nor the time of the first change are known.
	if diff := cmp.Diff([]policy.Excursion{{ID: "Secret/feature-*", To: x.now, Witnessed: true}}, x.decide().Excursions, cmpopts.IgnoreUnexported(policy.Excursion{})); diff != "" {
		t.Errorf("excursions of a glob (-want +got):\n%s", diff)
	}
}

// An inspection of pods is valid only for the excursions that it was made for.
func TestDecide_LooksAgainForOtherExcursions(t *testing.T) {
	x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1"))
	x.adopt()
	x.set(secret("db", "password", "2"))
	x.tick(time.Minute)
	x.set(secret("db", "password", "1"))
	excursions := x.decide().Excursions
	if len(excursions) != 1 {
		t.Fatalf("excursions = %+v, want one", excursions)
	}
	for name, tt := range map[string]struct {
		change func(*policy.Excursion, *uint64)
		want   policy.Action
	}{
		"the same excursion": {func(*policy.Excursion, *uint64) {}, policy.WriteVerified},
		"another source":     {func(e *policy.Excursion, _ *uint64) { e.ID = "Secret/other" }, policy.Inspect},
		"another beginning":  {func(e *policy.Excursion, _ *uint64) { e.From = e.From.Add(time.Second) }, policy.Inspect},
		"another end":        {func(e *policy.Excursion, _ *uint64) { e.To = e.To.Add(-time.Second) }, policy.Inspect},
		"another change":     {func(e *policy.Excursion, _ *uint64) { e.Reorder() }, policy.Inspect},
		"another template":   {func(_ *policy.Excursion, startedBy *uint64) { *startedBy-- }, policy.Inspect},
		"with older pods":    {func(e *policy.Excursion, _ *uint64) { e.OlderPods = true }, policy.Inspect},
		"an unrelated excursion": {func(e *policy.Excursion, _ *uint64) {
			*e = policy.Excursion{ID: "Secret/other", From: e.From.Add(time.Second), To: e.To.Add(time.Second), OlderPods: true}
		}, policy.Inspect},
	} {
		t.Run(name, func(t *testing.T) {
			of, startedBy := excursions[0], x.workload().StartedBy
			tt.change(&of, &startedBy)
			d := x.evaluate().Decide(policy.Observed{Now: x.now, Inspected: &policy.Inspection{Of: []policy.Excursion{of}, StartedBy: startedBy}})
			if d.Action != tt.want {
				t.Errorf("decision = %+v, want action %s", d, tt.want)
			}
		})
	}
}

// Events after the first lists may have happened before the lists.
func TestDecide_ExcursionThatMayHaveBeenBeforeTheFirstLists(t *testing.T) {
	for _, before := range []bool{false, true} {
		x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1"))
		x.adopt()
		thereAndBack := func() {
			x.set(secret("db", "password", "2"))
			x.set(secret("db", "password", "1"))
		}
		want := inspect("Secret/db")
		if before {
			x.restartWhile(thereAndBack)
			want = nothing
		} else {
			x.restart()
			thereAndBack()
		}
		if diff := cmp.Diff(want, outcomeOf(x.decide())); diff != "" {
			t.Errorf("before the first lists: %v (-want +got):\n%s", before, diff)
		}
	}
}

// With a record that has only a hash, any change of a source is a change, unless the pods are
// newer.
func TestDecide_HashAlone(t *testing.T) {
	image := func(x *world) {
		x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "app:2" })
	}
	for name, tt := range map[string]struct {
		do   func(*world)
		want outcome
	}{
		"a change of the only source": {func(x *world) { x.set(secret("db", "password", "2")) }, rollOut(policy.TriggerUnknown)},
		"a change before the pods":    {func(x *world) { x.set(secret("db", "password", "2")); image(x) }, baseline},
		"a change after the pods":     {func(x *world) { image(x); x.set(secret("db", "password", "2")) }, rollOut(policy.TriggerUnknown)},
	} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1"))
			x.adopt()
			x.annotate(policy.AppliedSourcesAnnotation, "[]")
			tt.do(x)
			x.tick(time.Minute)
			if diff := cmp.Diff(tt.want, outcomeOf(x.decide())); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}

// A hash does not identify keys, and the removal of a key has no date. So a process that finds only a different
// hash, and a newer template, cannot conclude that pods have read the content, if they read all keys or a key that
// does not exist.
func TestDecide_HashAloneAndKeysThatMayHaveGone(t *testing.T) {
	verify := outcome{policy.Pending, policy.ReasonVerifying, policy.Verify, policy.TriggerUnknown}
	for name, tt := range map[string]struct {
		pod  corev1.PodSpec
		now  *corev1.Secret
		want outcome
	}{
		"all keys are read, and one was removed": {podOf(envFrom(dependency.Secret, "db")), secret("db", "password", "1"), rollOut(policy.TriggerUnknown)},
		"all keys are read, and one was changed": {podOf(envFrom(dependency.Secret, "db")), secret("db", "password", "1", "user", "2"), rollOut(policy.TriggerUnknown)},
		"a key is read, and it was removed":      {podOf(optionalEnv(dependency.Secret, "db", "user")), secret("db", "password", "1"), rollOut(policy.TriggerUnknown)},
		"a key is read, and it was changed":      {podOf(optionalEnv(dependency.Secret, "db", "user")), secret("db", "password", "1", "user", "2"), verify},
	} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, tt.pod, secret("db", "password", "1", "user", "1"))
			x.adopt()
			x.annotate(policy.AppliedSourcesAnnotation, "[]")
			x.set(tt.now)
			x.tick(time.Minute)
			x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "app:2" })
			x.restart()
			x.tick(time.Minute)
			if diff := cmp.Diff(tt.want, outcomeOf(x.decide())); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}

// If the record is older than the pods, and content has changed since they started and changed back, as far as is
// remembered, times tell whether any pod read the content in between.
func TestDecide_ContentIsRestoredThatIsNotRecorded(t *testing.T) {
	thereAndBack := func(x *world) {
		x.set(secret("db", "password", "3"))
		x.tick(time.Minute)
		x.set(secret("db", "password", "2"))
	}
	for name, tt := range map[string]struct {
		do   func(*world)
		want outcome
	}{
		"back to what the pods read":                            {thereAndBack, inspect("Secret/db")},
		"back to what is recorded, which the pods did not read": {func(x *world) { x.set(secret("db", "password", "1")) }, rollOut("Secret/db")},
		"no pod starts in between": {func(x *world) {
			x.remove(dependency.Secret, "db")
			x.set(secret("db", "password", "2"))
		}, baseline},
		"while a watch is broken": {func(x *world) { x.broken(func() { thereAndBack(x) }) }, baseline},
		"with several counters":   {func(x *world) { x.SeparateCounters(); thereAndBack(x) }, rollOut("Secret/db")},
		"to new content":          {func(x *world) { x.set(secret("db", "password", "3")) }, rollOut("Secret/db")},
	} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1"))
			x.adopt()
			x.set(secret("db", "password", "2"))
			x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "app:2" })
			x.tick(time.Minute)
			tt.do(x)
			x.tick(time.Minute)
			if diff := cmp.Diff(tt.want, outcomeOf(x.decide())); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}

// Pods that have not been evicted yet are stale, also because of later changes.
func TestStale_AfterTheStrategyWasChanged(t *testing.T) {
	x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1"))
	x.adopt()
	check := func(what string, want ...string) {
		t.Helper()
		ids, _ := x.evaluate().Stale()
		if diff := cmp.Diff(want, ids); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	check("nothing happens")
	x.annotate(policy.RecreatingAnnotation, policy.EncodePods(nil), policy.StrategyAnnotation, "recreate")
	check("pods are evicted")
	last := policy.LastReload{Time: metav1.NewMicroTime(epoch), Trigger: "Secret/db"}
	x.annotate(policy.StrategyAnnotation, "", policy.LastReloadAnnotation, last.JSON())
	check("the strategy is another", policy.TriggerUnknown)
	if d := x.decide(); d.Trigger != "Secret/db" {
		t.Errorf("decision = %+v, want the trigger of the last restart", d)
	}
	x.set(secret("db", "password", "2"))
	check("content changes", "Secret/db")
}

// The content of pods is in doubt if nothing is recorded, or if content has changed and changed
// back.
func TestInDoubt(t *testing.T) {
	for name, tt := range map[string]struct {
		do   func(*world)
		want bool
	}{
		"recorded":            {func(*world) {}, false},
		"changed":             {func(x *world) { x.set(secret("db", "password", "2")) }, false},
		"nothing is recorded": {func(x *world) { x.annotate(policy.ConfigHashAnnotation, "garbage") }, true},
		"not everything that pods read is known": {func(x *world) {
			x.edit(func(d *appsv1.Deployment) {
				for i := range dependency.MaxSources {
					optionalEnvFrom(dependency.Secret, fmt.Sprint("s-", i))(&d.Spec.Template.Spec)
				}
			})
		}, true},
		"content has changed and changed back": {func(x *world) {
			x.set(secret("db", "password", "2"))
			x.set(secret("db", "password", "1"))
		}, true},
		"a rollback to pods that may be older": {func(x *world) {
			x.edit(func(d *appsv1.Deployment) { // its rollout has not begun yet
				d.Spec.Template.Spec.Containers[0].Image, d.Generation = "app:2", 2
			})
			x.set(secret("db", "password", "2"))
			x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image, d.Generation = "", 3 })
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1"))
			x.adopt()
			tt.do(x)
			if got := x.evaluate().InDoubt(); got != tt.want {
				t.Errorf("InDoubt = %v, want %v; decision = %+v", got, tt.want, x.decide())
			}
		})
	}
}

// If a source of a glob is ignored from now on, the sources of the glob change, but not what the record says about
// the others. Such sources are distinguished from those that did not count when the record was decided on.
func TestDecide_SourceOfAGlobIsIgnoredFromNowOn(t *testing.T) {
	name := func(x *world) { x.annotate(policy.SourcesAnnotation, "secret/*") }
	ignore := func(x *world) { x.set(annotated(secret("b", "k", "1"), policy.IgnoreAnnotation, "true")) }
	change := func(x *world) { x.set(secret("a", "k", "2")) }
	remove := func(x *world) { x.remove(dependency.Secret, "a") }
	excluded := func(x *world) { // another replica records the sources that counted before the change
		x.annotate(policy.ExcludeAnnotation, "secret/a")
		x.record()
		x.set(secret("c", "k", "2"))
		before := x.evaluate().Present()
		x.annotate(policy.ExcludeAnnotation, "")
		change(x)
		x.annotate(policy.ConfigHashAnnotation, before.Hash, policy.AppliedSourcesAnnotation, before.SourcesJSON())
	}
	kinds := func(x *world) { x.annotate(policy.KindsAnnotation, "secret") }
	evicted := func(x *world) { // all pods, so the record is written with the same template
		x.recorded = x.graph().Order()
		x.patch(policy.BaselinePatch(x.workload(), x.evaluate().Present()))
	}
	for name, tt := range map[string]struct {
		do   func(*world)
		ours bool // this replica wrote the record
		want outcome
	}{
		"a change that was recorded":                       {both(change, name, (*world).record, ignore), true, baseline},
		"a change that another replica recorded":           {both(change, name, (*world).record, ignore), false, baseline},
		"a change after the record":                        {both(name, (*world).record, change, ignore), true, rollOut("Secret/*")},
		"a change after the record of another replica":     {both(name, (*world).record, change, ignore), false, rollOut("Secret/*")},
		"a change that another replica cannot know":        {both(name, (*world).record, excluded, ignore), false, rollOut("Secret/*")},
		"a change with which pods were evicted":            {both(name, (*world).record, kinds, change, evicted, ignore), true, baseline},
		"a change with which another replica evicted pods": {both(name, (*world).record, kinds, change, evicted, ignore), false, rollOut("Secret/*")},
		"a deletion after the record":                      {both(name, (*world).record, remove, ignore), true, rollOut("Secret/*")},
		"a deletion that was recorded":                     {both(remove, name, (*world).record, ignore), true, baseline},
		"a deletion that another replica recorded":         {both(remove, name, (*world).record, ignore), false, baseline},
	} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, podOf(), secret("a", "k", "1"), secret("b", "k", "1"), secret("c", "k", "1"))
			x.adopt()
			x.tick(time.Minute)
			tt.do(x)
			x.tick(time.Minute)
			observed := policy.Observed{Now: x.now}
			if tt.ours {
				observed.Decided = x.recorded
			}
			if diff := cmp.Diff(tt.want, outcomeOf(x.evaluate().Decide(observed))); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}

// A source counts in mode auto until the mode is matched, and continues to count if it was marked before. A
// change in between counts, even if it reaches this process after a record was written for the new mode. A
// source that is marked only after that counts from then on.
func TestDecide_ChangeReadAfterTheModeIsMatched(t *testing.T) {
	for name, tt := range map[string]struct {
		late uint64 // how many revisions after the mode the source is written
		want outcome
	}{
		"marked before the mode": {0, rollOut("Secret/db")},
		"marked after the mode":  {20, baseline},
	} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1"))
			x.adopt()
			before := x.Version
			x.Version += 10
			x.annotate(policy.ReloadAnnotation, "matched")
			decided := x.graph().Order()
			if d := x.act(); d.Action != policy.WriteBaseline {
				t.Fatalf("the new mode: decision = %+v, want action WriteBaseline", d)
			}
			x.Version = before + tt.late
			x.set(secret("db", "password", "2"))
			x.set(annotated(secret("db", "password", "2"), policy.MatchAnnotation, "true"))
			x.Version += 20
			x.tick(time.Minute)
			got := x.evaluate().Decide(policy.Observed{Now: x.now, Decided: decided})
			if diff := cmp.Diff(tt.want, outcomeOf(got)); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}

// An ignored source counts from its deletion on. A record of another replica that is read after the deletion, but
// does not know it, was decided on before, even if resources do not share a revision counter; unless the template
// or the policy is also new to this process.
func TestStale_UnknownToTheRecordOfAnotherReplica(t *testing.T) {
	pod := podOf(env(dependency.Secret, "db", "password"), envFrom(dependency.ConfigMap, "settings"))
	ignored := func() ingesttest.Object {
		return annotated(secret("db", "password", "1"), policy.IgnoreAnnotation, "true")
	}
	for name, tt := range map[string]struct {
		after func(*world)
		want  []string
	}{
		"": {func(*world) {}, []string{"ConfigMap/settings", "Secret/db"}},
		"with a new template": {func(x *world) {
			x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "app:2" })
		}, []string{"ConfigMap/settings"}},
		"with a new policy": {func(x *world) { x.annotate(policy.KindsAnnotation, "configmap,secret") }, []string{"ConfigMap/settings"}},
	} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, pod, ignored(), configMap("settings", "a", "1"))
			x.SeparateCounters()
			x.adopt()
			x.remove(dependency.Secret, "db")
			x.set(secret("db", "password", "2"))
			tt.after(x)
			other := newWorld(t, pod, ignored(), configMap("settings", "a", "2")).evaluate().Present()
			x.annotate(policy.ConfigHashAnnotation, other.Hash, policy.AppliedSourcesAnnotation, other.SourcesJSON())
			got, _ := x.evaluate().Stale()
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("stale sources (-want +got):\n%s", diff)
			}
		})
	}
}
