// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
)

// restartsOf carries out decisions until there is nothing to be done, and returns how often the workload was restarted.
func (x *world) restartsOf() (restarts int) {
	x.t.Helper()
	for range 10 {
		x.tick(time.Hour)
		d := x.act()
		switch d.Action {
		case policy.None:
			if d.State != policy.InSync {
				x.t.Errorf("decision = %+v, want state InSync", d)
			}
			return restarts
		case policy.RollOut:
			restarts++
		}
	}
	x.t.Fatal("there is always something to be done")
	return 0
}

// TestDecide_AppearingAndDisappearing lets things happen to sources of a workload that an annotation of Reloader opts in.
// Each step waits until nothing more is to be done.
func TestDecide_AppearingAndDisappearing(t *testing.T) {
	type step struct {
		do func(*world)
		// restarts are those of the step: if sources that appear and disappear are ignored, if only those that appear
		// are, if only those that disappear are, and if none is.
		restarts, onDelete, onCreate, counted int
	}
	put := func(value string) func(*world) { return func(x *world) { x.set(secret("extra", "key", value)) } }
	gone := func(x *world) { x.remove(dependency.Secret, "extra") }
	away := func(f func(*world)) func(*world) { return func(x *world) { x.away(func() { f(x) }) } }
	restart := func(x *world) { x.restart() }
	ownRollout := func(x *world) {
		x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image += "x" })
	}
	for name, tt := range map[string]struct {
		present string // the content at first; empty: the source is absent
		steps   []step
	}{
		"appears":                                       {"", []step{{put("1"), 0, 0, 1, 1}, {put("2"), 1, 1, 1, 1}}},
		"disappears":                                    {"1", []step{{gone, 0, 1, 0, 1}}},
		"appears while no process runs":                 {"", []step{{away(put("1")), 0, 0, 1, 1}, {put("2"), 1, 1, 1, 1}}},
		"disappears unseen":                             {"1", []step{{away(gone), 0, 1, 0, 1}}},
		"comes back as it was":                          {"1", []step{{gone, 0, 1, 0, 1}, {put("1"), 0, 0, 0, 1}, {put("2"), 1, 1, 1, 1}}},
		"comes back with other content":                 {"1", []step{{gone, 0, 1, 0, 1}, {put("2"), 1, 0, 1, 1}}},
		"is replaced at once":                           {"1", []step{{both(gone, put("2")), 1, 1, 1, 1}}},
		"is replaced at once by the same":               {"1", []step{{both(gone, put("1")), 0, 0, 0, 0}, {put("2"), 1, 1, 1, 1}}},
		"comes back with other content after a restart": {"1", []step{{gone, 0, 1, 0, 1}, {restart, 0, 0, 0, 0}, {put("2"), 1, 0, 1, 1}}},
		"comes back with other content while away":      {"1", []step{{gone, 0, 1, 0, 1}, {away(put("2")), 1, 0, 1, 1}}},
		"disappears while away, comes back with other":  {"1", []step{{away(gone), 0, 1, 0, 1}, {put("2"), 1, 0, 1, 1}}},
		"disappears while away, comes back as it was":   {"1", []step{{away(gone), 0, 1, 0, 1}, {away(put("1")), 0, 0, 0, 1}, {put("2"), 1, 1, 1, 1}}},
		"changes after it appeared":                     {"", []step{{both(put("1"), put("2")), 1, 1, 1, 1}}},
		"appears, disappears, and appears otherwise":    {"", []step{{put("1"), 0, 0, 1, 1}, {gone, 0, 1, 0, 1}, {put("2"), 1, 0, 1, 1}}},
		"appears after the template changed":            {"", []step{{ownRollout, 0, 0, 0, 0}, {put("1"), 0, 0, 1, 1}, {put("2"), 1, 1, 1, 1}}},
		"disappears after the template changed":         {"1", []step{{ownRollout, 0, 0, 0, 0}, {gone, 0, 1, 0, 1}, {put("2"), 1, 0, 1, 1}}},
		"changes while it is absent for a moment":       {"1", []step{{both(put("2"), gone, put("1")), 0, 0, 0, 0}}},
	} {
		for _, named := range []string{"", "extra", "ex.*"} { // read by the pods; and named, by its name or a regular expression
			for flags, defaults := range map[string]policy.Defaults{"ignored": {}, "on delete": {ReloadOnDelete: true}, "on create": {ReloadOnCreate: true}} {
				t.Run(fmt.Sprintf("%s/%s/named %s", name, flags, named), func(t *testing.T) {
					pod, opts := podOf(optionalEnvFrom(dependency.Secret, "extra"), env(dependency.Secret, "db", "password")), []string{reloaderAuto, "true"}
					if named != "" {
						pod, opts = podOf(env(dependency.Secret, "db", "password")), []string{secretList, named}
					}
					x := newWorld(t, pod, secret("db", "password", "1"))
					x.defaults = defaults
					x.defaults.Mode, x.defaults.Settle = policy.Off, time.Second
					if tt.present != "" {
						put(tt.present)(x)
					}
					x.annotate(append(opts, policy.ReloadAnnotation, "")...)
					x.restart()
					if n := x.restartsOf(); n != 0 {
						t.Fatalf("opting in: %d restarts", n)
					}
					for i, s := range tt.steps {
						s.do(x)
						want := map[string]int{"ignored": s.restarts, "on delete": s.onDelete, "on create": s.onCreate}[flags]
						if strings.Contains(named, "*") && flags != "ignored" {
							want = s.counted // of a pattern both are changes, or neither
						}
						if n := x.restartsOf(); n != want {
							t.Fatalf("step %d: %d restarts, want %d", i+1, n, want)
						}
					}
				})
			}
		}
	}
}

// A source that loses the keys that pods read looks like one that was absent. That is one change, and if revisions cannot be
// compared, it is not found again after each restart.
func TestDecide_AppearingWithoutKeys(t *testing.T) {
	other := func(x *world) { x.set(secret("extra", "other", "1")) }
	key := func(x *world) { x.set(secret("extra", "other", "1", "key", "1")) }
	for name, several := range map[string]bool{"one counter": false, "several counters": true} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, podOf(optionalEnv(dependency.Secret, "extra", "key")), secret("extra", "other", "1", "key", "1"))
			x.defaults.Mode, x.defaults.Settle = policy.Off, time.Second
			x.annotate(reloaderAuto, "true", policy.ReloadAnnotation, "")
			if several {
				x.SeparateCounters()
			}
			x.restart()
			if n := x.restartsOf(); n != 0 {
				t.Fatalf("opting in: %d restarts", n)
			}
			for i, do := range []func(*world){other, key, other} {
				do(x)
				if n := x.restartsOf(); n != 1 {
					t.Fatalf("change %d: %d restarts, want 1", i+1, n)
				}
			}
		})
	}
}

// What changed after it had appeared is a change, also if the key of the hash was replaced since, with which contents are
// forgotten.
func TestDecide_ChangedBeforeTheKeyWasReplaced(t *testing.T) {
	for name, tt := range map[string]struct {
		values []string
		want   policy.Action
	}{
		"appears":             {[]string{"1"}, policy.WriteBaseline},
		"appears and changes": {[]string{"1", "2"}, policy.RollOut},
	} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, podOf(optionalEnvFrom(dependency.Secret, "extra")))
			x.annotate(reloaderAuto, "true", policy.ReloadAnnotation, "")
			x.restart()
			for _, value := range tt.values {
				x.set(secret("extra", "key", value))
				x.tick(time.Minute)
			}
			x.rekey(1, func(*world) {}, func(*world) {})
			x.tick(time.Hour)
			if d := x.decide(); d.Action != tt.want {
				t.Errorf("decision = %+v, want action %s", d, tt.want)
			}
		})
	}
}

// A source that is replaced by the same one has not changed, also if pods have read a change of it before that, and the record
// is older than the pods.
func TestDecide_ReplacedByTheSameAfterARollout(t *testing.T) {
	for name, opts := range map[string][]string{"read by the pods": {reloaderAuto, "true"}, "named": {secretList, "extra"}} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, podOf(optionalEnvFrom(dependency.Secret, "extra")), secret("extra", "key", "1"))
			x.defaults.Mode = policy.Off
			x.annotate(append(opts, policy.ReloadAnnotation, "")...)
			x.restart()
			for i, step := range []struct {
				do   func(*world)
				want int
			}{
				{func(*world) {}, 0},
				{func(x *world) { x.set(secret("extra", "key", "2")) }, 1},
				{func(x *world) { x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image += "x" }) }, 0},
				{func(x *world) { x.remove(dependency.Secret, "extra"); x.set(secret("extra", "key", "2")) }, 0},
				{func(x *world) { x.set(secret("extra", "key", "3")) }, 1},
			} {
				step.do(x)
				if n := x.restartsOf(); n != step.want {
					t.Fatalf("step %d: %d restarts, want %d", i+1, n, step.want)
				}
			}
		})
	}
}

// What happens before the workload has a record is told by what this process remembers of it: what may have been other content
// than the pods have restarts them, and nothing else does.
func TestDecide_AppearingBeforeTheFirstRecord(t *testing.T) {
	const restart, record = policy.RollOut, policy.WriteBaseline
	put := func(value string) func(*world) { return func(x *world) { x.set(secret("extra", "key", value)) } }
	gone := func(x *world) { x.remove(dependency.Secret, "extra") }
	ownRollout := func(x *world) {
		x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image += "x" })
	}
	// returns lets the source disappear and come back a number of times.
	returns := func(value string, times int) func(*world) {
		return func(x *world) {
			for range times {
				both(gone, put(value))(x)
			}
		}
	}
	for name, tt := range map[string]struct {
		present string // the content at first; empty: the source is absent
		do      func(*world)
		// What is done if sources that appear and disappear are ignored, if only those that appear are, and if only those that
		// disappear are.
		ignored, onDelete, onCreate policy.Action
	}{
		"nothing happens":                  {"1", func(*world) {}, record, record, record},
		"appears":                          {"", put("1"), record, record, restart},
		"disappears":                       {"1", gone, record, restart, record},
		"changes":                          {"1", put("2"), restart, restart, restart},
		"changes after it appeared":        {"", both(put("1"), put("2")), restart, restart, restart},
		"comes back as it was":             {"1", returns("1", 1), record, restart, record},
		"comes back as it was, twice":      {"1", returns("1", 2), record, restart, record},
		"comes back with other content":    {"1", returns("2", 1), restart, restart, restart},
		"appears, and comes back":          {"", both(put("1"), returns("1", 1)), record, restart, restart},
		"appears, and comes back twice":    {"", both(put("1"), returns("1", 2)), record, restart, restart},
		"changes, and comes back":          {"1", both(put("2"), returns("2", 1)), restart, restart, restart},
		"changes, is read, and comes back": {"1", both(put("2"), ownRollout, returns("2", 1)), record, restart, record},
		"changes, and comes back more often than is remembered":           {"1", both(put("2"), returns("2", 4)), restart, restart, restart},
		"changes back, and then comes back more often than is remembered": {"1", both(put("2"), put("1"), returns("1", 4)), restart, restart, restart},
	} {
		for flags, defaults := range map[string]policy.Defaults{"ignored": {}, "on delete": {ReloadOnDelete: true}, "on create": {ReloadOnCreate: true}} {
			for _, named := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/named %t", name, flags, named), func(t *testing.T) {
					pod, opts := podOf(optionalEnvFrom(dependency.Secret, "extra")), []string{reloaderAuto, "true"}
					if named {
						pod, opts = podOf(), []string{secretList, "extra"}
					}
					x := newWorld(t, pod)
					x.defaults = defaults
					x.defaults.Mode, x.defaults.Settle = policy.Off, time.Second
					if tt.present != "" {
						put(tt.present)(x)
					}
					x.annotate(append(opts, policy.ReloadAnnotation, "")...)
					x.restart()
					tt.do(x)
					x.tick(time.Hour)
					want := map[string]policy.Action{"ignored": tt.ignored, "on delete": tt.onDelete, "on create": tt.onCreate}[flags]
					if d := x.decide(); d.Action != want {
						t.Errorf("decision = %+v, want action %s", d, want)
					}
				})
			}
		}
	}
}

// Where revisions do not show whether the pods have read a change, times may show it. They do also for sources of which it is no
// change that they appear or disappear, so that these do not cause restarts for nothing.
func TestDecide_AppearingComparesTimes(t *testing.T) {
	change := func(x *world) {
		x.tick(time.Minute)
		x.set(secret("extra", "key", "2"))
		x.tick(time.Minute)
		x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image += "x" })
	}
	for name, do := range map[string]func(*world){
		"several counters, before the first record": func(x *world) { x.SeparateCounters(); change(x) },
		"only the hash is left, and no process runs": func(x *world) {
			x.adopt()
			x.annotate(policy.AppliedSourcesAnnotation, "")
			x.away(func() { change(x) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, podOf(optionalEnv(dependency.Secret, "extra", "key")), secret("extra", "key", "1"))
			x.annotate(reloaderAuto, "true", policy.ReloadAnnotation, "")
			do(x)
			x.tick(time.Hour)
			if d := x.decide(); d.Action != policy.Verify {
				t.Errorf("decision = %+v, want action Verify", d)
			}
		})
	}
}

// The sources of a regular expression are tracked each by itself, with those that disappeared, up to 64: then the expression as
// a whole. Nothing else that the record knows becomes a source of the workload.
func TestEvaluate_SourcesOfRegularExpressions(t *testing.T) {
	some := func(prefix string, n int) func(*world) {
		return func(x *world) {
			for i := range n {
				x.set(secret(fmt.Sprintf("%s-%02d", prefix, i), "key", "1"))
			}
		}
	}
	gone := func(name string) func(*world) { return func(x *world) { x.remove(dependency.Secret, name) } }
	adopt := func(x *world) { x.adopt() }
	list := func(value string) func(*world) { return func(x *world) { x.annotate(secretList, value) } }
	for name, tt := range map[string]struct {
		do func(*world)
		// By the first letter of their names, how many sources are tracked, and which patterns are.
		sources  map[string]int
		patterns []string
	}{
		"none":                  {list("a-.*"), nil, nil},
		"64 sources":            {both(list("a-.*"), some("a", 64)), map[string]int{"a": 64}, nil},
		"65 sources":            {both(list("a-.*"), some("a", 65)), nil, []string{"a-*"}},
		"64 sources of two":     {both(list("a-.*,b-.*"), some("a", 40), some("b", 24)), map[string]int{"a": 40, "b": 24}, nil},
		"65 sources of two":     {both(list("a-.*,b-.*"), some("a", 40), some("b", 25)), map[string]int{"a": 40}, []string{"b-*"}},
		"one disappears":        {both(list("a-.*"), some("a", 3), adopt, gone("a-01")), map[string]int{"a": 3}, nil},
		"one of 64 disappears":  {both(list("a-.*"), some("a", 64), adopt, gone("a-01")), map[string]int{"a": 64}, nil},
		"one of 64 is replaced": {both(list("a-.*"), some("a", 64), adopt, gone("a-01"), some("a-x", 1)), map[string]int{"a": 64}, nil},
		"others are no longer named": {
			both(list("a-.*,b-.*"), some("a", 3), some("b", 3), adopt, gone("b-00"), list("a-.*")), map[string]int{"a": 3}, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, podOf(env(dependency.ConfigMap, "settings", "a")), configMap("settings", "a", "1"))
			x.annotate(policy.ReloadAnnotation, "", configMapAuto, "true")
			tt.do(x)
			e := x.evaluate()
			shown, tracked, patterns := map[string]int{}, map[string]int{}, []string(nil)
			for i := range e.Sources {
				if s := &e.Sources[i]; s.Kind == dependency.Secret {
					shown[s.Name[:1]]++
				}
			}
			for id := range e.Present().Sources {
				switch name, secret := strings.CutPrefix(id, "Secret/"); {
				case secret && strings.Contains(name, "*"):
					patterns = append(patterns, name)
				case secret:
					tracked[name[:1]]++
				}
			}
			if diff := cmp.Diff(tt.sources, shown, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("sources of the workload, by the first letter of their names (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.sources, tracked, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("sources in the record, by the first letter of their names (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.patterns, patterns); diff != "" {
				t.Errorf("patterns in the record (-want +got):\n%s", diff)
			}
		})
	}
}
