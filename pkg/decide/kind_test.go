// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package decide_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
)

// A workload of a custom resource is restarted as the description of its kind says.
func TestRestartPatch_AsTheKindSays(t *testing.T) {
	const now, nowText = "2026-03-01T12:00:00.25Z", "2026-03-01T12:00:01Z"
	at, err := time.Parse(time.RFC3339Nano, now)
	if err != nil {
		t.Fatal(err)
	}
	template := map[string]any{"metadata": map[string]any{"annotations": map[string]any{record.ConfigHashAnnotation: "v1.k.h"}}}
	for name, tt := range map[string]struct {
		restart       *dependency.Restart
		spec          map[string]any
		annotation    string // with its value
		strategy      string
		marksTemplate bool
	}{
		"by its template": {nil, map[string]any{"template": template}, "", "annotation", true},
		"by a template at another place": {
			&dependency.Restart{Template: []string{"spec", "worker", "podTemplate"}},
			map[string]any{"worker": map[string]any{"podTemplate": template}}, "", "annotation", true,
		},
		"by a field": {
			&dependency.Restart{Field: []string{"spec", "restart", "at"}},
			map[string]any{"restart": map[string]any{"at": nowText}}, "", "field", false,
		},
		"by an annotation with the time":  {&dependency.Restart{Annotation: "x.io/at"}, nil, "x.io/at=" + nowText, "object-annotation", false},
		"by an annotation with a value":   {&dependency.Restart{Annotation: "x.io/roll", Value: "true"}, nil, "x.io/roll=true", "object-annotation", false},
		"by the record":                   {&dependency.Restart{}, nil, "", "object-annotation", false},
		"not at all, it is only reported": {&dependency.Restart{EventOnly: true}, nil, "", "notify", false},
	} {
		t.Run(name, func(t *testing.T) {
			w := &dependency.Workload{Traits: dependency.Traits{Rollable: true, Custom: true, Restart: tt.restart}}
			p := policy.NewPolicy(policy.Annotated{Workload: annotations{policy.ReloadAnnotation: "auto"}, Traits: w.Traits}, policy.Defaults{Mode: policy.Off})
			if s := p.RestartsBy(w); s.Name() != tt.strategy || s.MarksTemplate() != tt.marksTemplate || s.NamesPods() || s.UnderWay(w) {
				t.Errorf("strategy = %s, marks the template: %v", s.Name(), s.MarksTemplate())
			}
			data, err := p.RestartPatch(w, &record.Restart{Present: record.Record{Hash: "v1.k.h"}, Last: record.NewRequestedReload(nil, at, "me", "")})
			if err != nil {
				t.Fatal(err)
			}
			var got struct {
				Metadata struct{ Annotations map[string]string }
				Spec     map[string]any
			}
			if err := json.Unmarshal(data, &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.spec, got.Spec); diff != "" {
				t.Errorf("spec (-want +got):\n%s", diff)
			}
			if got.Metadata.Annotations[record.ConfigHashAnnotation] != "v1.k.h" || got.Metadata.Annotations[record.LastReloadAnnotation] == "" {
				t.Errorf("annotations = %v: the record is missing", got.Metadata.Annotations)
			}
			if key, value, _ := strings.Cut(tt.annotation, "="); got.Metadata.Annotations[key] != value {
				t.Errorf("annotations = %v, want %s", got.Metadata.Annotations, tt.annotation)
			}
			if off := (&policy.Policy{Mode: policy.Off}); off.RestartsBy(w).Name() != tt.strategy {
				t.Errorf("a workload that has not opted in is restarted by %s", off.RestartsBy(w).Name())
			}
		})
	}
}

// A strategy that is not possible for a kind is a problem if an annotation asks for it. The default of the server does not apply.
func TestStrategies_OfCustomResources(t *testing.T) {
	unknown := dependency.Traits{Rollable: true, Custom: true, UnknownPods: true, Restart: &dependency.Restart{}}
	known := dependency.Traits{Rollable: true, Custom: true}
	reported := dependency.Traits{Rollable: true, Custom: true, Restart: &dependency.Restart{EventOnly: true}}
	keeps := dependency.Traits{Rollable: true, Custom: true, KeepsPods: ".spec.type is InPlace"}
	keepsOnly := dependency.Traits{Rollable: true, Custom: true, KeepsPods: ".spec.type is InPlace", PodsByLabels: true}
	const variables, pods = "the variables of its containers cannot be set", "its pods cannot be looked up"
	for name, tt := range map[string]struct {
		traits   dependency.Traits
		asked    string
		def      record.Strategy
		strategy string
		problem  string
	}{
		"env-var":                              {known, "env-var", nil, "annotation", variables},
		"env-var of one without known pods":    {unknown, "env-var", nil, "object-annotation", variables},
		"env-var by default":                   {known, "", record.EnvVar, "annotation", ""},
		"recreate":                             {known, "recreate", nil, "recreate", ""},
		"recreate of pods with its labels":     {dependency.Traits{Rollable: true, Custom: true, PodsByLabels: true}, "recreate", nil, "annotation", "it is not certain which pods belong to it"},
		"recreate without known pods":          {unknown, "recreate", nil, "object-annotation", pods},
		"recreate without known pods, default": {unknown, "", record.Recreate, "object-annotation", ""},
		"recreate of what is only reported":    {reported, "recreate", nil, "notify", "its changes are only reported"},
		"recreate of the same, by default":     {reported, "", record.Recreate, "notify", ""},
		"annotation":                           {unknown, "annotation", nil, "object-annotation", ""},
		"of pods that no rollout replaces": {keeps, "", nil, "annotation",
			`a change of its pod template would not replace its pods, because .spec.type is InPlace: set the annotation configdep.io/strategy="recreate"`},
		"annotation, of pods that no rollout replaces":               {keeps, "annotation", nil, "annotation", "would not replace its pods"},
		"recreate, of pods that no rollout replaces":                 {keeps, "recreate", nil, "recreate", ""},
		"recreate by default, of pods that no rollout replaces":      {keeps, "", record.Recreate, "recreate", ""},
		"of pods that no rollout replaces, and that are not certain": {keepsOnly, "", nil, "annotation", "would not replace its pods, because .spec.type is InPlace"},
	} {
		a := policy.Annotated{Workload: annotations{policy.ReloadAnnotation: "auto"}, Traits: tt.traits}
		if tt.asked != "" {
			a.Workload[policy.StrategyAnnotation] = tt.asked
		}
		w := &dependency.Workload{Traits: tt.traits}
		p := policy.NewPolicy(a, policy.Defaults{Mode: policy.Off, Strategy: tt.def})
		if got := p.RestartsBy(w).Name(); got != tt.strategy {
			t.Errorf("%s: strategy = %s, want %s", name, got, tt.strategy)
		}
		if got := p.OnlyReports(w); got != (tt.strategy == "notify") {
			t.Errorf("%s: only reported: %v", name, got)
		}
		if problems := strings.Join(p.Problems, "; "); (problems == "") != (tt.problem == "") || !strings.Contains(problems, tt.problem) {
			t.Errorf("%s: problems = %q, want %q", name, p.Problems, tt.problem)
		}
		if off := policy.NewPolicy(policy.Annotated{Traits: tt.traits}, policy.Defaults{Mode: policy.Off, Strategy: tt.def}); len(off.Problems) > 0 {
			t.Errorf("%s: problems of a workload that has not opted in: %q", name, off.Problems)
		}
	}
}

// A strategy that restarts pods which no rollout replaces must be allowed. Until it is, that is the only problem.
func TestStrategies_NotAllowedForPodsThatAreKept(t *testing.T) {
	a := policy.Annotated{
		Workload: annotations{policy.ReloadAnnotation: "auto", policy.StrategyAnnotation: "recreate"},
		Traits:   dependency.Traits{Rollable: true, Custom: true, KeepsPods: ".spec.type is InPlace"},
	}
	p := policy.NewPolicy(a, policy.Defaults{Mode: policy.Off, Strategies: []record.Strategy{record.Annotate}})
	if !p.StrategyNotAllowed || len(p.Problems) != 1 || !strings.Contains(p.Problems[0], "is not allowed") {
		t.Errorf("problems = %q", p.Problems)
	}
}

// Variables of other tools stay in the containers of a custom resource: no patch can remove one and leave the other ones alone.
func TestRestartPatch_LeavesVariablesOfCustomResources(t *testing.T) {
	foreign := &dependency.Foreign{Annotations: []string{"x.io/hash"}, Variables: []dependency.Variable{{Container: "app", Name: "STAKATER_DB_SECRET"}}}
	for custom, want := range map[bool]bool{true: false, false: true} {
		w := &dependency.Workload{Foreign: foreign, Containers: []string{"app"}, Traits: dependency.Traits{Rollable: true, Custom: custom}}
		data, err := (&policy.Policy{Mode: policy.Auto}).RestartPatch(w, &record.Restart{})
		if err != nil {
			t.Fatal(err)
		}
		if record.IsJSONPatch(data) != want || !strings.Contains(string(data), "hash") {
			t.Errorf("custom resource: %v: patch = %s", custom, data)
		}
	}
}

// A controller is told to restart pods by a field, which its owner can reset. Then the pods stay as they are, and it is told again.
func TestDecide_ControllerThatWasTold(t *testing.T) {
	x := oneSecret(t)
	x.scale(2)
	x.tick(time.Minute)
	w := func() *dependency.Workload {
		w := x.workload()
		w.Restart = &dependency.Restart{Field: []string{"spec", "restartAt"}}
		return w
	}
	evaluate := func() *decide.Evaluation {
		w()
		return x.evaluate()
	}
	write := func() {
		e := evaluate()
		x.patch(record.Patch(e.Workload, e.Decide(x.now).Record))
	}
	restart := func() {
		e := evaluate()
		x.patch(e.Policy.RestartPatch(e.Workload, &record.Restart{Present: e.Present(), Last: record.NewAutomaticReload(record.LastReloadOf(e.Workload), x.now, 0, db)}))
	}
	want := func(what string, want outcome) decide.Decision {
		t.Helper()
		d := evaluate().Decide(x.now)
		if got := outcomeOf(d); got != want {
			t.Errorf("%s: decision = %+v, want %+v", what, got, want)
		}
		return d
	}
	write()
	password("2")(x)
	x.tick(time.Minute)
	want("content has changed", rollOut(db))
	restart()
	told := x.now
	x.tick(time.Second)
	awaited := outcome{State: decide.RollingOut, Reason: decide.ReasonControllerTold, Trigger: db}
	if d := want("the controller was told", awaited); !d.RecheckAt.Equal(told.Add(10 * time.Minute)) {
		t.Errorf("recheck at %v", d.RecheckAt)
	}
	x.tick(10 * time.Minute)
	want("it has done nothing", rollOut(db))
	restart()
	x.tick(time.Second)
	want("it was told again", awaited)
	x.crash()
	x.tick(time.Second)
	want("one pod has restarted", awaited)
	slices.Reverse(x.pods)
	x.crash()
	x.tick(20 * time.Minute)
	if d := want("all have", outcome{State: decide.InSync, Reason: decide.ReasonContentApplied, Action: decide.WriteRecord, Trigger: db}); d.Pods.Stale > 0 {
		t.Errorf("pods = %+v", d.Pods)
	}
	password("3")(x)
	x.tick(time.Minute)
	want("other content", rollOut(db))

	// The clock of configdep is behind, so that pods seem to have been created after their controller was told. They do not count as missed, and are
	// not looked at again at a time that is over.
	x.tick(5 * time.Minute)
	for _, p := range slices.Clone(x.pods) {
		x.stop(p.Name)
		x.start()
	}
	changed := secret("db", "password", "4")
	x.tick(5 * time.Minute)
	changed.ManagedFields = x.Managed(`{"f:data":{}}`)
	x.tick(-10 * time.Minute)
	x.set(changed)
	x.tick(time.Second)
	restart()
	x.tick(20 * time.Minute)
	if d := evaluate().Decide(x.now); d.Pods.Stale != 2 || !d.RecheckAt.IsZero() && !d.RecheckAt.After(x.now) {
		t.Errorf("recheck at %v, now %v: %+v", d.RecheckAt, x.now, d)
	}
}

// A controller reads times to the second, so that of a restart is rounded up, or pods of the same second would be spared, and a second restart within one second
// gets the next one: otherwise, it would change nothing. What
// another client has written as the time of the last restart moves it no further than clocks may differ.
func TestRestartPatch_TwiceInASecond(t *testing.T) {
	const first, next, now = "2026-03-01T12:00:01Z", "2026-03-01T12:00:02Z", "2026-03-01T12:00:00.75Z"
	at, err := time.Parse(time.RFC3339Nano, now)
	if err != nil {
		t.Fatal(err)
	}
	for by, restart := range map[string]*dependency.Restart{
		"annotation": {Annotation: "x.io/at"}, "field": {Field: []string{"spec", "restart"}}, "the other field": nil,
	} {
		for last, want := range map[string]string{
			"": first, "2026-03-01T11:59:59.900000Z": first, "2026-03-01T12:00:00.250000Z": next, "2026-03-01T12:00:01.000000Z": next,
			"2126-03-01T12:00:00.000000Z": first,
		} {
			w := &dependency.Workload{Traits: dependency.Traits{Rollable: true, Custom: true, Restart: restart, RestartsAt: restart == nil}}
			if last != "" {
				w.Marks.LastReload = `{"time":"` + last + `","trigger":"Request"}`
			}
			a := annotations{policy.ReloadAnnotation: "auto", rolloutStrategy: "restart"}
			p := policy.NewPolicy(policy.Annotated{Workload: a, Traits: w.Traits}, policy.Defaults{Mode: policy.Off})
			data, err := p.RestartPatch(w, &record.Restart{Present: record.Record{Hash: "v1.k.h"}, Last: record.NewRequestedReload(nil, at, "me", "")})
			if err != nil {
				t.Fatal(err)
			}
			var got struct {
				Metadata struct{ Annotations map[string]string }
				Spec     map[string]any
			}
			if err := json.Unmarshal(data, &got); err != nil {
				t.Fatal(err)
			}
			told := got.Metadata.Annotations["x.io/at"]
			for _, value := range got.Spec {
				told, _ = value.(string)
			}
			if told != want {
				t.Errorf("by %s, after %q: %s, want %s", by, last, told, want)
			}
			if recorded := got.Metadata.Annotations[record.LastReloadAnnotation]; want != first && !strings.Contains(recorded, strings.TrimSuffix(want, "Z")) {
				t.Errorf("by %s, after %q: %s is recorded, so that the next restart does not know of %s", by, last, recorded, want)
			}
		}
	}
}

// Of a custom resource whose pods cannot be seen, the record alone tells, also of a source that came after the workload had opted in.
func TestDecide_SourceThatComesAfterACustomResource(t *testing.T) {
	x := newWorld(t, podOf(envFrom(dependency.Secret, "db")))
	for _, p := range slices.Clone(x.pods) {
		x.stop(p.Name)
	}
	want := func(what string, want outcome) {
		t.Helper()
		x.tick(time.Minute)
		x.workload().Custom = true
		e := x.evaluate()
		d := e.Decide(x.now)
		if got := outcomeOf(d); got != want {
			t.Errorf("%s: decision = %+v, want %+v", what, got, want)
		}
		if d.Action == decide.WriteRecord {
			x.patch(record.Patch(e.Workload, d.Record))
		}
	}
	want("it is missing", outcome{State: decide.Blocked, Reason: decide.ReasonSourceMissing, Action: decide.WriteRecord})
	password("1")(x)
	want("it has come", outcome{State: decide.InSync, Reason: decide.ReasonContentApplied, Action: decide.WriteRecord})
	want("it stays", outcome{State: decide.InSync, Reason: decide.ReasonContentApplied})
	password("2")(x)
	want("it changes", rollOut(db))
}
