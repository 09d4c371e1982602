// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
)

// foreign is the dialect of a tool with an annotation to restart workloads, and no settings.
type foreign struct{}

const (
	foreignRestart = "other.example.com/restart"
	foreignIgnore  = "other.example.com/ignore"
)

func (foreign) Name() string                { return "foreign" }
func (foreign) Owns(key string) bool        { return strings.HasPrefix(key, "other.example.com/") }
func (foreign) OwnsOnTemplate(string) bool  { return false }
func (foreign) MarksAnnotation(string) bool { return false }
func (foreign) MarksVariable(string) bool   { return false }

func (foreign) Declare(d *policy.Declaration) {
	if d.Workload[foreignRestart] != "" || d.Namespace[foreignRestart] != "" {
		d.Restart(policy.Auto, foreignRestart, dependency.ConfigMap, dependency.Secret)
	}
}

func (foreign) Namespace(annotations map[string]string) map[string]string {
	return map[string]string{foreignRestart: annotations[foreignRestart]}
}

func (foreign) Source(annotations map[string]string) dependency.SourceMarks {
	return dependency.SourceMarks{Ignored: annotations[foreignIgnore] != ""}
}

// withForeign adds the dialect until the test ends.
func withForeign(t *testing.T) {
	t.Helper()
	t.Cleanup(policy.AddDialect(foreign{}))
}

// What several dialects declare is united. Only off, on the workload itself, applies to all of them. The annotations that matter
// are named, each once, and the default where it applies to any kind of source.
func TestNewPolicy_UnitesTheDialects(t *testing.T) {
	withForeign(t)
	type m = map[string]string
	for name, tt := range map[string]struct {
		workload, namespace m
		mode                policy.Mode
		by                  string
	}{
		"no annotations":               {nil, nil, policy.Off, policy.DeclaredByDefault},
		"another tool's annotation":    {m{foreignRestart: "yes"}, nil, policy.Auto, foreignRestart},
		"the same on the namespace":    {nil, m{foreignRestart: "yes"}, policy.Auto, foreignRestart},
		"both on the workload":         {m{foreignRestart: "yes", policy.ReloadAnnotation: "listed"}, nil, policy.Auto, policy.ReloadAnnotation + ", " + foreignRestart},
		"off on the workload":          {m{foreignRestart: "yes", policy.ReloadAnnotation: "off"}, nil, policy.Off, policy.ReloadAnnotation},
		"a default of the namespace":   {m{foreignRestart: "yes"}, m{policy.ReloadAnnotation: "listed"}, policy.Auto, foreignRestart + ", Namespace " + policy.ReloadAnnotation},
		"off as a default":             {m{foreignRestart: "yes"}, m{policy.ReloadAnnotation: "off"}, policy.Auto, foreignRestart},
		"a setting and another tool's": {m{policy.SettleAnnotation: "1s", foreignRestart: "yes"}, nil, policy.Auto, foreignRestart},

		"false":                                      {m{reloaderAuto: "false"}, nil, policy.Off, reloaderAuto},
		"false for each kind":                        {m{configMapAuto: "false", secretAuto: "false"}, nil, policy.Off, configMapAuto + ", " + secretAuto},
		"false for a kind":                           {m{configMapAuto: "false"}, nil, policy.Off, policy.DeclaredByDefault},
		"false, and a name":                          {m{reloaderAuto: "false", secretList: "db"}, nil, policy.Listed, secretList},
		"a name":                                     {m{secretList: "db"}, nil, policy.Listed, secretList},
		"a name, and a default of the namespace":     {m{secretList: "db"}, m{policy.ReloadAnnotation: "auto"}, policy.Auto, secretList + ", Namespace " + policy.ReloadAnnotation},
		"false, and a default of the namespace":      {m{reloaderAuto: "false"}, m{policy.ReloadAnnotation: "auto"}, policy.Off, reloaderAuto},
		"false for a kind, and one of the namespace": {m{secretAuto: "false"}, m{policy.ReloadAnnotation: "auto"}, policy.Auto, "Namespace " + policy.ReloadAnnotation},
	} {
		t.Run(name, func(t *testing.T) {
			p := policy.NewPolicy(policy.Annotated{Workload: tt.workload, Namespace: tt.namespace}, policy.Defaults{Mode: policy.Off, Settle: time.Minute})
			if p.Mode != tt.mode || p.DeclaredBy != tt.by || len(p.Problems) > 0 {
				t.Errorf("mode = %s, declared by %s, by kind %v, problems = %v; want %s, %s", p.Mode, p.DeclaredBy, p.Modes, p.Problems, tt.mode, tt.by)
			}
			if settle := tt.workload[policy.SettleAnnotation]; p.Mode != policy.Off && settle != "" && p.Settle != time.Second {
				t.Errorf("settle = %v, want %s", p.Settle, settle)
			}
		})
	}
}

// Package ingest keeps the annotations of all dialects: without them, a dialect would have no effect. Of pod templates it keeps
// only those that Reloader reads there, and ours, which are a mistake.
func TestOwns(t *testing.T) {
	for key, want := range map[string]bool{
		policy.ReloadAnnotation: true, record.ConfigHashAnnotation: true, foreignRestart: false, "configdep.io.example.com/x": false, "configdep.io": false, "": false,
	} {
		if got := policy.Dialects(nil).Owns(key); got != want {
			t.Errorf("Owns(%q) = %v, want %v", key, got, want)
		}
	}
	withForeign(t)
	if !policy.Dialects(nil).Owns(foreignRestart) {
		t.Error("the annotations of another dialect are dropped")
	}
	read := policy.ReadAnnotations(
		map[string]string{foreignRestart: "yes", "x": "y", policy.ReloadAnnotation: "auto", record.ConfigHashAnnotation: "h"},
		map[string]string{foreignRestart: "yes", "x": "y", policy.ReloadAnnotation: "auto", reloaderAuto: "true", secretList: "db", pausePeriod: "1m"},
	)
	want := dependency.Annotations{
		Settings: map[string]string{foreignRestart: "yes", policy.ReloadAnnotation: "auto"},
		Template: map[string]string{reloaderAuto: "true", secretList: "db", policy.ReloadAnnotation: "auto"},
		Marks:    dependency.Marks{Hash: "h"},
	}
	if diff := cmp.Diff(want, read); diff != "" {
		t.Errorf("annotations that are kept (-want +got):\n%s", diff)
	}
	if got := policy.Dialects(nil).ReadNamespace(map[string]string{foreignRestart: "yes", policy.SettleAnnotation: "1s", "x": "y"}, true); len(got) != 2 {
		t.Errorf("annotations of a namespace that are kept = %v, want 2", got)
	}
}

// A workload on which all annotations have the prefix is read in configdep's own dialect alone.
func TestOwns_PrefixIsOfOneDialect(t *testing.T) {
	for _, name := range policy.DialectNames()[1:] {
		others, err := policy.NewDialects([]string{name}, policy.ReloaderAnnotations{})
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range others[1:] {
			for _, key := range append(policy.EveryAnnotation, policy.IgnoreAnnotation, policy.MatchAnnotation) {
				if d.Owns(key) || d.OwnsOnTemplate(key) {
					t.Errorf("%s belongs to %s, too", key, d.Name())
				}
			}
		}
	}
}

// Most workloads in a cluster are not annotated, and each of their changes is noted.
func TestNote_AllocatesNothingWithoutAnnotations(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() {
		var w dependency.Workload
		policy.Note(&w, nil, policy.Defaults{Mode: policy.Off})
	}); n > 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

// Owners mark a source with annotations, of which only the documented values count.
func TestReadSource(t *testing.T) {
	for value, want := range map[string]bool{"true": true, "false": false, "True": false, "true\n": false, "yes": false, "": false} {
		if m := policy.Dialects(nil).ReadSource(map[string]string{policy.IgnoreAnnotation: value}); m != (dependency.SourceMarks{Ignored: want}) {
			t.Errorf("ignore %q: marks = %+v", value, m)
		}
		if m := policy.Dialects(nil).ReadSource(map[string]string{policy.MatchAnnotation: value}); m != (dependency.SourceMarks{Match: want}) {
			t.Errorf("match %q: marks = %+v", value, m)
		}
	}
	withForeign(t)
	if m := policy.Dialects(nil).ReadSource(map[string]string{foreignIgnore: "x", policy.MatchAnnotation: "true"}); m != (dependency.SourceMarks{Ignored: true, Match: true}) {
		t.Errorf("annotations of two dialects: marks = %+v", m)
	}
}
