// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

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
