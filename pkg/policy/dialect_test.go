// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
)

// foreign is the dialect of a tool with an annotation to restart workloads, and no settings.
type foreign struct{}

const (
	foreignRestart = "other.example.com/restart"
	foreignIgnore  = "other.example.com/ignore"
)

func (foreign) Owns(key string) bool                     { return strings.HasPrefix(key, "other.example.com/") }
func (foreign) Scope() []string                          { return []string{foreignRestart} }
func (foreign) Own(annotations map[string]string) string { return annotations[foreignRestart] }

func (foreign) Declares(annotations map[string]string) bool {
	_, found := annotations[foreignRestart]
	return found
}

func (foreign) Policy(p *policy.Policy, _, _ map[string]string, _ *policy.Defaults) {
	p.Mode, p.DeclaredBy = policy.Auto, foreignRestart
}

func (foreign) Namespace(annotations, _ map[string]string) map[string]string {
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

// Annotations on the workload take precedence over those on its namespace, and on one object the first dialect does.
func TestNewPolicy_ChoosesTheDialect(t *testing.T) {
	withForeign(t)
	type m = map[string]string
	for name, tt := range map[string]struct {
		workload, namespace m
		mode                policy.Mode
		by                  string
	}{
		"no annotations":                                        {nil, nil, policy.Off, policy.DeclaredByDefault},
		"a setting without a mode":                              {m{policy.SettleAnnotation: "1s"}, nil, policy.Off, policy.DeclaredByDefault},
		"another tool's annotation":                             {m{foreignRestart: "yes"}, nil, policy.Auto, foreignRestart},
		"another tool's default":                                {nil, m{foreignRestart: "yes"}, policy.Auto, foreignRestart},
		"both on one object":                                    {m{foreignRestart: "yes", policy.ReloadAnnotation: "listed"}, nil, policy.Listed, policy.ReloadAnnotation},
		"another tool's on the workload, ours on the namespace": {m{foreignRestart: "yes"}, m{policy.ReloadAnnotation: "listed"}, policy.Auto, foreignRestart},
		"ours on the workload, another tool's on the namespace": {m{policy.ReloadAnnotation: "off"}, m{foreignRestart: "yes"}, policy.Off, policy.ReloadAnnotation},
		"both on the namespace":                                 {nil, m{foreignRestart: "yes", policy.ReloadAnnotation: "matched"}, policy.Matched, "Namespace " + policy.ReloadAnnotation},
		"our settings without a mode, another tool's default":   {m{policy.SettleAnnotation: "1s"}, m{foreignRestart: "yes"}, policy.Auto, foreignRestart},
	} {
		t.Run(name, func(t *testing.T) {
			p := policy.NewPolicy(tt.workload, tt.namespace, policy.Defaults{Mode: policy.Off})
			if p.Mode != tt.mode || p.DeclaredBy != tt.by || len(p.Problems) > 0 {
				t.Errorf("mode = %s, declared by %s, problems = %v", p.Mode, p.DeclaredBy, p.Problems)
			}
		})
	}
}

// Package ingest keeps the annotations of all dialects: without them, a dialect would have no effect.
func TestOwns(t *testing.T) {
	for key, want := range map[string]bool{
		policy.ReloadAnnotation: true, policy.ConfigHashAnnotation: true, foreignRestart: false, "configdep.io.example.com/x": false, "configdep.io": false, "": false,
	} {
		if got := policy.Owns(key); got != want {
			t.Errorf("Owns(%q) = %v, want %v", key, got, want)
		}
	}
	withForeign(t)
	if !policy.Owns(foreignRestart) {
		t.Error("the annotations of another dialect are dropped")
	}
	read := policy.ReadAnnotations(map[string]string{foreignRestart: "yes", "x": "y", policy.ReloadAnnotation: "auto", policy.ConfigHashAnnotation: "h"}, nil)
	want := dependency.Annotations{Settings: map[string]string{foreignRestart: "yes", policy.ReloadAnnotation: "auto"}, Marks: dependency.Marks{Hash: "h"}}
	if diff := cmp.Diff(want, read); diff != "" {
		t.Errorf("annotations that are kept (-want +got):\n%s", diff)
	}
	if got := policy.ReadNamespace(map[string]string{foreignRestart: "yes", policy.SettleAnnotation: "1s", "x": "y"}, map[string]string{policy.ReloadAnnotation: "auto"}); len(got) != 3 {
		t.Errorf("annotations of a namespace that are kept = %v, want 3", got)
	}
}

// Opting out and in, in any dialect, is noted with the previous annotations of the workload.
func TestNote_OfAnotherDialect(t *testing.T) {
	withForeign(t)
	before := policy.AnnotatedWorkload(map[string]string{foreignRestart: "yes"}, nil)
	policy.Note(before, nil, nil, policy.Defaults{Mode: policy.Off}, "1", dependency.Arrival{Live: true, Order: 1})
	after := policy.AnnotatedWorkload(nil, nil)
	policy.Note(after, before, nil, policy.Defaults{Mode: policy.Off}, "2", dependency.Arrival{Live: true, Order: 2})
	if !before.OptedIn || before.Scope == (dependency.Text{}) || after.OptedIn || after.OptedOver != "yes" {
		t.Errorf("before: in %v, scope %q; after: in %v, over %q", before.OptedIn, before.Scope, after.OptedIn, after.OptedOver)
	}
}

// Owners mark a source with annotations, of which only the documented values count.
func TestReadSource(t *testing.T) {
	for value, want := range map[string]bool{"true": true, "false": false, "True": false, "true\n": false, "yes": false, "": false} {
		if m := policy.ReadSource(map[string]string{policy.IgnoreAnnotation: value}); m != (dependency.SourceMarks{Ignored: want}) {
			t.Errorf("ignore %q: marks = %+v", value, m)
		}
		if m := policy.ReadSource(map[string]string{policy.MatchAnnotation: value}); m != (dependency.SourceMarks{Match: want}) {
			t.Errorf("match %q: marks = %+v", value, m)
		}
	}
	withForeign(t)
	if m := policy.ReadSource(map[string]string{foreignIgnore: "x", policy.MatchAnnotation: "true"}); m != (dependency.SourceMarks{Ignored: true, Match: true}) {
		t.Errorf("annotations of two dialects: marks = %+v", m)
	}
}
