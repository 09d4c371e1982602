// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package decide_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
)

// TestDecide_AppearingAndDisappearing lets things happen to sources of a workload that an annotation of Reloader opts in.
// Each step waits until nothing more is to be done.
func TestDecide_AppearingAndDisappearing(t *testing.T) {
	type step struct {
		do func(*world)
		// restarts are those of the step: if sources that appear and disappear are ignored, if only those that appear
		// are, and if only those that disappear are.
		restarts, onDelete, onCreate int
	}
	put := func(value string) func(*world) { return func(x *world) { x.set(secret("extra", "key", value)) } }
	gone := func(x *world) { x.remove(dependency.Secret, "extra") }
	away := func(f func(*world)) func(*world) { return func(x *world) { x.away(func() { f(x) }) } }
	restart := func(x *world) { x.restart() }
	ownRollout := func(x *world) {
		x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image += "x" })
		x.tick(time.Minute)
		x.rollOut()
	}
	for name, tt := range map[string]struct {
		present string // the content at first; empty: the source is absent
		steps   []step
	}{
		"appears":                                       {"", []step{{put("1"), 0, 0, 1}, {put("2"), 1, 1, 1}}},
		"disappears":                                    {"1", []step{{gone, 0, 1, 0}}},
		"appears while no process runs":                 {"", []step{{away(put("1")), 0, 0, 1}, {put("2"), 1, 1, 1}}},
		"disappears unseen":                             {"1", []step{{away(gone), 0, 1, 0}}},
		"comes back as it was":                          {"1", []step{{gone, 0, 1, 0}, {put("1"), 0, 0, 0}, {put("2"), 1, 1, 1}}},
		"comes back with other content":                 {"1", []step{{gone, 0, 1, 0}, {put("2"), 1, 0, 1}}},
		"is replaced at once":                           {"1", []step{{both(gone, put("2")), 1, 1, 1}}},
		"is replaced at once by the same":               {"1", []step{{both(gone, put("1")), 0, 0, 0}, {put("2"), 1, 1, 1}}},
		"comes back with other content after a restart": {"1", []step{{gone, 0, 1, 0}, {restart, 0, 0, 0}, {put("2"), 1, 0, 1}}},
		"comes back with other content while away":      {"1", []step{{gone, 0, 1, 0}, {away(put("2")), 1, 0, 1}}},
		"disappears while away, comes back with other":  {"1", []step{{away(gone), 0, 1, 0}, {put("2"), 1, 0, 1}}},
		"disappears while away, comes back as it was":   {"1", []step{{away(gone), 0, 1, 0}, {away(put("1")), 0, 0, 0}, {put("2"), 1, 1, 1}}},
		"changes after it appeared":                     {"", []step{{both(put("1"), put("2")), 0, 0, 1}}},
		"appears, disappears, and appears otherwise":    {"", []step{{put("1"), 0, 0, 1}, {gone, 0, 0, 0}, {put("2"), 1, 0, 1}}},
		"appears after the template changed":            {"", []step{{ownRollout, 0, 0, 0}, {put("1"), 0, 0, 1}, {put("2"), 1, 1, 1}}},
		"disappears after the template changed":         {"1", []step{{ownRollout, 0, 0, 0}, {gone, 0, 1, 0}, {put("2"), 1, 0, 1}}},
		"changes while it is absent for a moment":       {"1", []step{{both(put("2"), gone, put("1")), 0, 0, 0}}},
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
					if n := len(x.restarts()); n != 0 {
						t.Fatalf("opting in: %d restarts", n)
					}
					for i, s := range tt.steps {
						s.do(x)
						want := map[string]int{"ignored": s.restarts, "on delete": s.onDelete, "on create": s.onCreate}[flags]
						if n := len(x.restarts()); n != want {
							t.Fatalf("step %d: %d restarts, want %d", i+1, n, want)
						}
						if d := x.decide(); d.State == decide.Stale && !strings.Contains(d.Message, " or the source has appeared, which restarts nothing. Create a Reload") && !strings.Contains(d.Message, " It was deleted, which does not restart the workload. Create a Reload") {
							t.Errorf("step %d: %s", i+1, d.Message)
						}
					}
				})
			}
		}
	}
}
