// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
)

// A replica that does not lead leaves what it only knows from lists to the leader, and decides again after some time. What
// it has seen itself remains in doubt until the leader has recorded the result of its inspection.
func TestDecide_StandsBy(t *testing.T) {
	change := func(x *world) { x.set(secret("db", "password", "2")) }
	thereAndBack := func(x *world) {
		change(x)
		x.tick(time.Second)
		x.set(secret("db", "password", "1"))
	}
	more := func(value string) func(*world) {
		return func(x *world) { x.set(secret("more", "k", value)) }
	}
	listed := func(f func(*world)) func(*world) { return func(x *world) { x.broken(func() { f(x) }) } }
	template := func(image string, observed int64) func(*world) {
		return func(x *world) {
			x.edit(func(d *appsv1.Deployment) {
				d.Spec.Template.Spec.Containers[0].Image, d.Generation, d.Status.ObservedGeneration = image, 3, observed
			})
		}
	}
	for name, tt := range map[string]struct {
		do     func(*world)
		leader outcome
		want   outcome
	}{
		"seen":                                {thereAndBack, inspect("Secret/db"), inspect("Secret/db")},
		"seen in part, and in part in a list": {both(func(x *world) { x.set(secret("db", "password", "2")) }, func(x *world) { x.broken(func() { x.set(secret("db", "password", "1")) }) }), inspect("Secret/db"), nothing},
		"seen, and then another change":       {both(thereAndBack, func(x *world) { x.set(secret("db", "password", "3")) }, func(x *world) { x.tick(time.Minute) }), rollOut("Secret/db"), rollOut("Secret/db")},
		"a glob":                              {both(func(x *world) { x.annotate(policy.SourcesAnnotation, "secret/m*"); x.act(); x.tick(time.Minute) }, more("2"), more("1")), inspect("Secret/m*"), inspect("Secret/m*")},
		"a glob, in part in a list":           {both(func(x *world) { x.annotate(policy.SourcesAnnotation, "secret/m*"); x.act(); x.tick(time.Minute) }, more("2"), listed(more("1"))), inspect("Secret/m*"), nothing},
		"very often": {func(x *world) {
			for range 20 {
				thereAndBack(x)
			}
		}, inspect("Secret/db"), inspect("Secret/db")},
		"a change that is read after the record of its restart, with several counters": {func(x *world) {
			x.SeparateCounters()
			there := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "3"), secret("more", "k", "1"))
			restart := policy.Restart{Present: there.evaluate().Present(), Last: policy.NewAutomaticReload(nil, x.now, 0, "Secret/db")}
			x.patch(x.evaluate().Policy.RestartPatch(x.workload(), &restart))
			change(x)
			x.set(secret("db", "password", "3"))
		}, inspect("Secret/db"), outcome{State: policy.InSync, Reason: "ContentApplied", Trigger: "Secret/db"}},
		"pods of a new template have read what has changed back": {
			both(change, template("app:2", 3), func(x *world) { x.set(secret("db", "password", "1")); x.tick(time.Minute) }),
			rollOut("Secret/db"), outcome{policy.Pending, "SourceChanged", policy.WriteMixed, "Secret/db"},
		},
		"pods of a new template have read what has changed back, in part in a list": {
			both(change, template("app:2", 3), listed(func(x *world) { x.set(secret("db", "password", "1")) }), func(x *world) { x.tick(time.Minute) }),
			rollOut("Secret/db"), rollOut("Secret/db"),
		},
		"pods of a new template have read what has changed back, which a list had shown before": {
			both(listed(change), template("app:2", 3), func(x *world) { x.set(secret("db", "password", "1")); x.tick(time.Minute) }),
			rollOut("Secret/db"), outcome{policy.Pending, "SourceChanged", policy.WriteMixed, "Secret/db"},
		},
		"nothing has changed":                        {func(*world) {}, nothing, nothing},
		"a template has come back":                   {both(template("app:2", 1), change, template("", 3)), inspect("Secret/db"), inspect("Secret/db")},
		"a list shows that a template has come back": {both(template("app:2", 1), change, listed(template("", 3))), inspect("Secret/db"), baseline},
		"a list shows what changed meanwhile":        {both(template("app:2", 1), listed(change), template("", 3)), inspect("Secret/db"), baseline},
	} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1"), secret("more", "k", "1"))
			x.adopt()
			tt.do(x)
			for standsBy, want := range map[bool]outcome{false: tt.leader, true: tt.want} {
				d := x.evaluate().Decide(policy.Observed{Now: x.now, StandsBy: standsBy})
				if diff := cmp.Diff(want, outcomeOf(d)); diff != "" {
					t.Errorf("stands by: %t (-want +got):\n%s", standsBy, diff)
				}
				if mixed := slices.Equal(d.Mixed, []string{"Secret/db"}); mixed != (d.Action == policy.WriteMixed) {
					t.Errorf("stands by: %t: %s of %v", standsBy, d.Action, d.Mixed)
				}
				again := time.Time{}
				if tt.leader.Action == policy.Inspect {
					again = x.now.Add(policy.DoubtRecheck)
				}
				if !d.RecheckAt.Equal(again) {
					t.Errorf("stands by: %t: the next decision is at %v, want %v", standsBy, d.RecheckAt, again)
				}
			}
		})
	}
}

// A record of another replica may reflect more than this replica has read, which then waits; but not for what it knows
// otherwise.
func TestDecide_KnownBy(t *testing.T) {
	other := func(x *world) { // of content that this replica has yet to read
		there := newWorld(x.t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "2"))
		x.patch(policy.BaselinePatch(x.workload(), there.evaluate().Present()))
	}
	change := func(x *world) { x.set(secret("db", "password", "3")) }
	for name, tt := range map[string]struct {
		do      func(*world)
		here    bool // this replica wrote the record
		waits   bool
		restart bool
	}{
		"a record of content that has yet to be read":                   {do: other, waits: true, restart: true},
		"a record of this replica":                                      {do: other, here: true, restart: true},
		"a record of content that has yet to be read, and then changes": {do: both(other, change), restart: true},
		"a record that says mixed": {do: func(x *world) {
			x.patch(x.evaluate().MixedPatch([]string{"Secret/db"}))
		}, restart: true},
		"a record that says that pods remain to be evicted": {do: func(x *world) {
			x.patch(policy.AbandonedPatch(x.workload(), x.evaluate().Present()))
		}, restart: true},
		"a record of fewer sources": {do: both(
			func(x *world) { x.annotate(policy.ExcludeAnnotation, "configmap/settings") },
			func(x *world) { x.act() },
			func(x *world) { x.annotate(policy.ExcludeAnnotation, "") },
		)},
		"a record with another key": {do: func(x *world) {
			x.annotate(policy.ConfigHashAnnotation, "v1.00000000."+strings.Repeat("0", 32))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, podOf(env(dependency.Secret, "db", "password"), optionalEnvFrom(dependency.ConfigMap, "settings")),
				secret("db", "password", "1"), configMap("settings", "a", "1"))
			x.adopt()
			tt.do(x)
			x.tick(time.Minute)
			o := policy.Observed{Now: x.now}
			if tt.here {
				o.Decided = x.graph().Order()
			}
			d := x.evaluate().Decide(o)
			want := uint64(0)
			if tt.waits {
				want = x.workload().RecordedAt.Version
			}
			if d.KnownBy != want || (d.Action == policy.RollOut) != tt.restart || d.Action == policy.None {
				t.Errorf("KnownBy = %d, want %d; decision = %+v", d.KnownBy, want, d)
			}
		})
	}
}

// The first record of a workload has the content that the leader found. A replica that saw content change before that, while
// the pods were running, knows that the leader did not see it.
func TestDecide_FirstRecordOfAnotherReplica(t *testing.T) {
	change := func(x *world) { x.set(secret("db", "password", "2")) }
	thereAndBack := both(change, func(x *world) { x.tick(time.Second) }, func(x *world) { x.set(secret("db", "password", "1")) })
	optIn := func(x *world) { x.annotate(policy.ReloadAnnotation, "auto") }
	record := func(x *world) {
		e := x.evaluate()
		x.patch(policy.BaselinePatch(e.Workload, e.Present()))
	}
	restart := func(x *world) {
		e := x.evaluate()
		x.patch(e.Policy.RestartPatch(e.Workload, &policy.Restart{Present: e.Present(), Last: policy.NewAutomaticReload(nil, x.now, 0, "Secret/db"), Always: true}))
	}
	again := func(x *world) {
		x.annotate(policy.AppliedSourcesAnnotation, x.deployment.Annotations[policy.AppliedSourcesAnnotation]+" ")
	}
	db := inspect("Secret/db")
	for name, tt := range map[string]struct {
		do   func(*world)
		want outcome
	}{
		"content changed": {both(optIn, change, record), db},
		"content changed, and the workload is written since": {both(optIn, change, record, func(x *world) { x.annotate(policy.SettleAnnotation, "1s") }), db},
		"content changed and changed back":                   {both(optIn, thereAndBack, record), db},
		"content changed before the workload opted in":       {both(change, optIn, record), nothing},
		"a source that does not count changed":               {both(optIn, func(x *world) { x.set(secret("more", "k", "2")) }, record), nothing},
		"another key changed":                                {both(optIn, func(x *world) { x.set(secret("db", "password", "1", "user", "2")) }, record), nothing},
		"the first record is of a restart":                   {both(optIn, change, restart), outcome{State: policy.InSync, Reason: "ContentApplied", Trigger: "Secret/db"}},
		"the pods were looked up": {both(optIn, change, func(x *world) {
			e := x.evaluate()
			x.patch(policy.VerifiedPatch(e.Workload, e.Present(), x.now))
		}), nothing},
		"the first record is of an eviction": {both(func(x *world) { x.annotate(policy.StrategyAnnotation, "recreate") }, optIn, change, restart), outcome{policy.RollingOut, policy.ReasonRecreating, policy.Continue, "Secret/db"}},
		"the record is not the first":        {both(optIn, change, record, again), nothing},
		"the first record came with another template": {both(optIn, change, func(x *world) {
			x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "app:2" })
		}, record), nothing},
		"the first record is in a list":                 {both(optIn, change, func(x *world) { x.broken(func() { record(x) }) }), nothing},
		"several counters do not tell which came first": {both(func(x *world) { x.SeparateCounters() }, optIn, thereAndBack, record), nothing},
	} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1"), secret("more", "k", "1"))
			x.annotate(policy.ReloadAnnotation, "off")
			x.tick(time.Minute)
			tt.do(x)
			for _, standsBy := range []bool{false, true} {
				d := x.evaluate().Decide(policy.Observed{Now: x.now, StandsBy: standsBy})
				if diff := cmp.Diff(tt.want, outcomeOf(d)); diff != "" {
					t.Errorf("stands by: %t (-want +got):\n%s", standsBy, diff)
				}
			}
		})
	}
}

// Only pods that started while content was different may have read it, if the content at their start is known, or if it changed
// after the record.
func TestDecide_FirstRecordOfAnotherReplica_Excursion(t *testing.T) {
	record := func(x *world) {
		e := x.evaluate()
		x.patch(policy.BaselinePatch(e.Workload, e.Present()))
	}
	nothing := func(*world) {}
	for name, tt := range map[string]struct {
		template, before, after func(*world)
		always                  bool // any pod may have read it
	}{
		"the template was seen": {template: func(x *world) {
			x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "app:2" })
			x.set(secret("db", "password", "0")) // before the workload opts in
			x.set(secret("db", "password", "1"))
		}, before: nothing, after: record},
		"the template was not seen":                         {template: nothing, before: nothing, after: record, always: true},
		"content changed and changed back after the record": {template: nothing, before: record, after: nothing},
		"content also changed before the record": {template: nothing, before: func(x *world) {
			x.set(secret("db", "password", "0"))
			x.tick(time.Minute)
			x.set(secret("db", "password", "1"))
			record(x)
			x.tick(time.Minute)
		}, after: nothing, always: true},
		"content also changed before the record and before the workload opted in": {template: func(x *world) {
			x.set(secret("db", "password", "0"))
			x.tick(time.Minute)
			x.set(secret("db", "password", "1"))
		}, before: record, after: nothing},
	} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1"))
			x.annotate(policy.ReloadAnnotation, "off")
			tt.template(x)
			x.annotate(policy.ReloadAnnotation, "auto")
			x.tick(time.Minute)
			tt.before(x)
			from := x.now
			x.set(secret("db", "password", "2"))
			x.tick(time.Second)
			x.set(secret("db", "password", "1"))
			tt.after(x)
			if tt.always {
				from = time.Time{}
			}
			got := x.evaluate().Decide(policy.Observed{Now: x.now, StandsBy: true}).Excursions
			if len(got) != 1 || !got[0].From.Equal(from) || !got[0].To.Equal(x.now) || !got[0].Witnessed {
				t.Errorf("excursions = %+v, want one from %v to %v that was seen", got, from, x.now)
			}
		})
	}
}

// Pods that existed when this process started may have waited for sources that were created later, and then have read no other
// content.
func TestDecide_FirstRecordOfPodsThatMayHaveWaited(t *testing.T) {
	x := newWorld(t, podOf(env(dependency.Secret, "db", "password")))
	x.tick(time.Hour)
	x.set(secret("db", "password", "1"))
	e := x.evaluate()
	x.patch(policy.BaselinePatch(e.Workload, e.Present()))
	decide := func() policy.Decision { return x.evaluate().Decide(policy.Observed{Now: x.now, StandsBy: true}) }
	if diff := cmp.Diff(nothing, outcomeOf(decide())); diff != "" {
		t.Errorf("once recorded: decision (-want +got):\n%s", diff)
	}
	x.tick(time.Hour)
	from := x.now
	x.set(secret("db", "password", "2"))
	x.set(secret("db", "password", "1"))
	if got := decide().Excursions; len(got) != 1 || !got[0].From.Equal(from) {
		t.Errorf("excursions = %+v, want one from %v", got, from)
	}
}

// What a standby replica has found out about its own doubts does not apply to those of the leader.
func TestDecide_StandsBy_RecordsNothingButDoubts(t *testing.T) {
	x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1"))
	x.adopt()
	x.set(secret("db", "password", "2"))
	x.tick(time.Second)
	x.set(secret("db", "password", "1"))
	o := policy.Observed{Now: x.now, StandsBy: true}
	excursions := x.evaluate().Decide(o).Excursions
	for _, mixed := range [][]string{nil, {"Secret/db"}} {
		o.Inspected = &policy.Inspection{Of: excursions, StartedBy: x.workload().StartedBy, Mixed: mixed}
		want := nothing
		if mixed != nil {
			want = outcome{policy.Pending, policy.ReasonVerifying, policy.WriteMixed, "Secret/db"}
		}
		if diff := cmp.Diff(want, outcomeOf(x.evaluate().Decide(o))); diff != "" {
			t.Errorf("mixed %q: decision (-want +got):\n%s", mixed, diff)
		}
	}
}
