// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package decide_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
)

const pausedAt = "deployment.reloader.stakater.com/paused-at"

// pausing returns a world with a Deployment that is to be paused for a minute when it is restarted, and whose content has
// changed and settled.
func pausing(t *testing.T) *world {
	t.Helper()
	x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1"))
	x.annotate(policy.ReloadAnnotation, "", reloaderAuto, "true", pausePeriod, "1m")
	x.adopt()
	x.set(secret("db", "password", "2"))
	x.tick(time.Minute)
	return x
}

// A Deployment that is paused when it is restarted is resumed when the period ends, and earlier only if nothing says how long
// it lasts. It is never resumed if a user paused it.
func TestDecide_Pause(t *testing.T) {
	waits := outcome{decide.Pending, decide.ReasonPausePeriod, decide.None, "Secret/db"}
	resume := outcome{decide.Pending, decide.ReasonPausePeriod, decide.Resume, "Secret/db"}
	tick := func(d time.Duration) func(*world) { return func(x *world) { x.tick(d) } }
	annotate := func(pairs ...string) func(*world) { return func(x *world) { x.annotate(pairs...) } }
	since := func(d time.Duration) func(*world) {
		return func(x *world) { x.annotate(pausedAt, x.now.Add(d).UTC().Format(time.RFC3339)) }
	}
	setPaused := func(paused bool) func(*world) {
		return func(x *world) { x.edit(func(d *appsv1.Deployment) { d.Spec.Paused = paused }) }
	}
	for name, tt := range map[string]struct {
		do   func(*world)
		want outcome
		spec string // of the patch that resumes it
	}{
		"it begins":                                {tick(0), waits, ""},
		"it has nearly ended":                      {tick(time.Minute - time.Nanosecond), waits, ""},
		"it has ended":                             {tick(time.Minute), resume, `"spec":{"paused":false}`},
		"another process decides":                  {func(x *world) { x.restart() }, waits, ""},
		"another process decides after its end":    {func(x *world) { x.tick(time.Hour); x.restart() }, resume, `"spec":{"paused":false}`},
		"content changes":                          {func(x *world) { x.set(secret("db", "password", "3")); x.tick(10 * time.Second) }, waits, ""},
		"a source is missing after its end":        {func(x *world) { x.remove(dependency.Secret, "db"); x.tick(time.Minute) }, resume, `"spec":{"paused":false}`},
		"the period becomes longer":                {both(tick(time.Minute), annotate(pausePeriod, "2m")), waits, ""},
		"the period becomes shorter":               {both(tick(30*time.Second), annotate(pausePeriod, "30s")), resume, `"spec":{"paused":false}`},
		"the annotation of the period goes":        {annotate(pausePeriod, ""), resume, `"spec":{"paused":false}`},
		"the period is invalid":                    {annotate(pausePeriod, "soon"), resume, `"spec":{"paused":false}`},
		"it began at an invalid time":              {annotate(pausedAt, "yesterday"), resume, `"spec":{"paused":false}`},
		"it began in the future":                   {since(dependency.MaxClockSkew + time.Second), resume, `"spec":{"paused":false}`},
		"another clock is ahead":                   {since(dependency.MaxClockSkew), waits, ""},
		"automatic restarts are turned off":        {annotate(policy.ReloadAnnotation, "off"), resume, `"spec":{"paused":false}`},
		"a user resumes it":                        {setPaused(false), resume, ""},
		"it is over, and then a user pauses it":    {both(annotate(pausedAt, ""), setPaused(false), setPaused(true)), outcome{decide.Stale, decide.ReasonHeld, decide.None, "Secret/db"}, ""},
		"only the annotation of its start is lost": {both(annotate(pausedAt, ""), tick(time.Hour)), outcome{decide.Stale, decide.ReasonHeld, decide.None, "Secret/db"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			x := pausing(t)
			if d := x.act(); d.Action != decide.RollOut {
				t.Fatalf("decision = %+v, want action RollOut", d)
			}
			if at := x.now.UTC().Format(time.RFC3339); !x.deployment.Spec.Paused || x.deployment.Annotations[pausedAt] != at {
				t.Fatalf("after the restart, paused = %t since %q, want since %q", x.deployment.Spec.Paused, x.deployment.Annotations[pausedAt], at)
			}
			tt.do(x)
			d := x.decide()
			if diff := cmp.Diff(tt.want, outcomeOf(d)); diff != "" {
				t.Fatalf("decision (-want +got):\n%s", diff)
			}
			switch {
			case d.Action == decide.Resume:
				e := x.evaluate()
				data, err := e.Policy.Pause.ResumePatch(e.Workload)
				if err != nil || strings.Contains(string(data), `"spec"`) != (tt.spec != "") || !strings.Contains(string(data), tt.spec) {
					t.Fatalf("patch = %s, %v, want %s", data, err, tt.spec)
				}
				x.patch(data, err)
				if _, marked := x.deployment.Annotations[pausedAt]; marked || x.deployment.Spec.Paused {
					t.Errorf("after the patch, paused = %t, annotations = %v", x.deployment.Spec.Paused, x.deployment.Annotations)
				}
				if d := x.decide(); d.Action == decide.Resume {
					t.Errorf("after the patch: %+v", d)
				}
			case d.Reason == decide.ReasonPausePeriod:
				at, err := time.Parse(time.RFC3339, x.deployment.Annotations[pausedAt])
				period, _ := time.ParseDuration(x.deployment.Annotations[pausePeriod])
				end := at.Add(period)
				if err != nil || !d.RecheckAt.Equal(end) {
					t.Errorf("it is decided again at %v, want %v", d.RecheckAt, end)
				}
				if want := fmt.Sprintf("will be resumed at %s: the pause period is %v.", end.Format(time.RFC3339), period); !strings.Contains(d.Message, want) {
					t.Errorf("message = %q, want it to say %q", d.Message, want)
				}
			}
		})
	}
}

// Reloader may pause a Deployment that is none of configdep's, such as in a namespace that --namespace-selector does not select.
// Its pause must not end early, nor be ended by configdep at all.
func TestDecide_LeavesThePauseOfAnotherToolIfRestartsAreOff(t *testing.T) {
	for name, off := range map[string]func(*world){
		"by an annotation": func(x *world) { x.annotate(policy.ReloadAnnotation, "off") },
		"by the default":   func(x *world) { x.annotate(reloaderAuto, "") },
		"by the selector":  func(x *world) { x.scope.NamespaceSelector = labels.Set{"team": "a"}.AsSelector(); x.restart() },
	} {
		t.Run(name, func(t *testing.T) {
			x := pausing(t)
			x.annotate(pausedAt, x.now.UTC().Format(time.RFC3339), record.LastReloadAnnotation, `{"time":"2026-02-01T09:00:00.000000Z"}`) // by configdep, before
			x.edit(func(d *appsv1.Deployment) { d.Spec.Paused = true })
			off(x)
			for range 3 {
				if d := x.act(); d.Reason == decide.ReasonPausePeriod || d.Action == decide.Resume || !x.deployment.Spec.Paused {
					t.Errorf("decision = %+v, want that it stays paused", d)
				}
				x.tick(time.Hour)
			}
		})
	}
}

// A restart pauses a Deployment only for a period, and only if it is not paused already: a user who paused it resumes it.
func TestRestartPatch_Pause(t *testing.T) {
	for name, tt := range map[string]struct {
		do   func(*world)
		want bool
	}{
		"a period":           {func(*world) {}, true},
		"no period":          {func(x *world) { x.annotate(pausePeriod, "") }, false},
		"the least period":   {func(x *world) { x.annotate(pausePeriod, "1ns") }, true},
		"the period 0":       {func(x *world) { x.annotate(pausePeriod, "0s") }, false},
		"paused by a user":   {func(x *world) { x.edit(func(d *appsv1.Deployment) { d.Spec.Paused = true }) }, false},
		"restarts are off":   {func(x *world) { x.annotate(policy.ReloadAnnotation, "off") }, false},
		"pods are evicted":   {func(x *world) { x.annotate(policy.StrategyAnnotation, "recreate") }, false},
		"a configdep opt-in": {func(x *world) { x.annotate(policy.ReloadAnnotation, "auto", reloaderAuto, "") }, true},
	} {
		t.Run(name, func(t *testing.T) {
			x := pausing(t)
			tt.do(x)
			e := x.evaluate()
			data, err := e.Policy.RestartPatch(e.Workload, &record.Restart{Present: e.Present(), Last: record.NewRequestedReload(nil, x.now, "", ""), Always: true})
			if err != nil {
				t.Fatal(err)
			}
			marks, pauses := strings.Contains(string(data), pausedAt), strings.Contains(string(data), `"paused":true`)
			if marks != tt.want || pauses != tt.want {
				t.Errorf("it is paused: %t, and marked: %t, want %t: %s", pauses, marks, tt.want, data)
			}
		})
	}
}
