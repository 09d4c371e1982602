// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
)

func TestNewPolicy_AnnotationValues(t *testing.T) {
	defaults := policy.Defaults{Mode: policy.Auto, Settle: time.Second, MinInterval: 10 * time.Second}
	base := policy.Policy{Mode: policy.Auto, DeclaredBy: "Default", Strategy: record.Annotate, Settle: time.Second, MinInterval: 10 * time.Second}
	with := func(f func(*policy.Policy)) policy.Policy {
		p := base
		f(&p)
		return p
	}
	declared := func(m policy.Mode) policy.Policy {
		return with(func(p *policy.Policy) { p.Mode, p.DeclaredBy = m, "configdep.io/reload" })
	}
	sources := func(patterns ...dependency.Pattern) policy.Policy {
		return with(func(p *policy.Policy) { p.Sources = patterns })
	}
	db := dependency.Pattern{Kind: dependency.Secret, Name: "db"}
	features := dependency.Pattern{Kind: dependency.ConfigMap, Name: "feature-*"}
	for _, tc := range []struct {
		key, value string
		want       policy.Policy
	}{
		{policy.ReloadAnnotation, "auto", declared(policy.Auto)},
		{policy.ReloadAnnotation, "matched", declared(policy.Matched)},
		{policy.ReloadAnnotation, "listed", declared(policy.Listed)},
		{policy.ReloadAnnotation, "off", declared(policy.Off)},
		{policy.ReloadAnnotation, " auto\n", declared(policy.Auto)},
		{policy.SourcesAnnotation, "secret/db", sources(db)},
		{policy.SourcesAnnotation, " Secret/db ,, CONFIGMAP/feature-*\n", sources(db, features)},
		{policy.SourcesAnnotation, "secret/db, secret/db", sources(db)},
		{policy.SourcesAnnotation, "", base},
		{policy.SourcesAnnotation, " , ", base},
		{policy.ExcludeAnnotation, "configmap/feature-*", with(func(p *policy.Policy) { p.Exclude = []dependency.Pattern{features} })},
		{policy.KindsAnnotation, "secret", with(func(p *policy.Policy) { p.Kinds = []dependency.SourceKind{dependency.Secret} })},
		{policy.KindsAnnotation, "secret,secret", with(func(p *policy.Policy) { p.Kinds = []dependency.SourceKind{dependency.Secret} })},
		{policy.KindsAnnotation, "Configmap, secret", with(func(p *policy.Policy) {
			p.Kinds = []dependency.SourceKind{dependency.ConfigMap, dependency.Secret}
		})},
		{policy.LiveVolumesAnnotation, "true", with(func(p *policy.Policy) { p.LiveVolumes = true })},
		{policy.LiveVolumesAnnotation, " false ", base},
		{policy.SettleAnnotation, "0", with(func(p *policy.Policy) { p.Settle = 0 })},
		{policy.SettleAnnotation, "500ms", with(func(p *policy.Policy) { p.Settle = 500 * time.Millisecond })},
		{policy.SettleAnnotation, "1h30m", with(func(p *policy.Policy) { p.Settle = 90 * time.Minute })},
		{policy.MinIntervalAnnotation, "5m", with(func(p *policy.Policy) { p.MinInterval = 5 * time.Minute })},
		{policy.MinIntervalAnnotation, "0", with(func(p *policy.Policy) { p.MinInterval = 0 })},
		{policy.StrategyAnnotation, "annotation", base},
		{policy.StrategyAnnotation, "recreate", with(func(p *policy.Policy) { p.Strategy = record.Recreate })},
	} {
		t.Run(tc.key+"="+tc.value, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, policy.NewPolicy(policy.Annotated{Workload: map[string]string{tc.key: tc.value}}, defaults)); diff != "" {
				t.Errorf("on the workload (-want +got):\n%s", diff)
			}
			want := tc.want
			if tc.key == policy.ReloadAnnotation {
				want.DeclaredBy = "Namespace configdep.io/reload"
			}
			if diff := cmp.Diff(want, policy.NewPolicy(policy.Annotated{Namespace: map[string]string{tc.key: tc.value}}, defaults)); diff != "" {
				t.Errorf("on the namespace (-want +got):\n%s", diff)
			}
		})
	}
}

// TestNewPolicy_InvalidValueIsToldAndNeverTakenForAnother: the message names the annotation, its
// value, and the allowed values.
func TestNewPolicy_InvalidValueIsToldAndNeverTakenForAnother(t *testing.T) {
	const aDuration = `must be a duration such as "0", "500ms", "30s" or "5m"`
	long := strings.Repeat("ä", 40) // 80 bytes
	for _, tc := range []struct{ key, value, problem string }{
		{policy.ReloadAnnotation, "Auto", `invalid annotation configdep.io/reload="Auto": must be one of auto, matched, listed, off (did you mean auto?)`},
		{policy.ReloadAnnotation, "", `invalid annotation configdep.io/reload="": must be one of auto, matched, listed, off`},
		{policy.ReloadAnnotation, "on", `invalid annotation configdep.io/reload="on": must be one of auto, matched, listed, off`},
		{policy.ReloadAnnotation, "uato", `invalid annotation configdep.io/reload="uato": must be one of auto, matched, listed, off (did you mean auto?)`},
		{policy.ReloadAnnotation, "true", `invalid annotation configdep.io/reload="true": must be one of auto, matched, listed, off (did you mean auto?)`},
		{policy.SourcesAnnotation, "db", `invalid annotation configdep.io/sources="db": "db" is not of the form configmap/NAME, secret/NAME or secretproviderclass/NAME`},
		{policy.SourcesAnnotation, "secret/db, secret/", `invalid annotation configdep.io/sources="secret/db, secret/": "secret/" is not of the form configmap/NAME, secret/NAME or secretproviderclass/NAME`},
		{policy.SourcesAnnotation, "pod/web", `invalid annotation configdep.io/sources="pod/web": "pod" is none of configmap, secret and secretproviderclass`},
		{policy.SourcesAnnotation, "secret/shop/db", `invalid annotation configdep.io/sources="secret/shop/db": "shop/db" is neither a valid object name nor a pattern of valid names, in which only * is a wildcard`},
		{policy.ExcludeAnnotation, "secret/[a-", `invalid annotation configdep.io/exclude="secret/[a-": "[a-" is neither a valid object name nor a pattern of valid names, in which only * is a wildcard`},
		{policy.ExcludeAnnotation, `configmap/a\`, `invalid annotation configdep.io/exclude="configmap/a\\": "a\\" is neither a valid object name nor a pattern of valid names, in which only * is a wildcard`},
		{policy.KindsAnnotation, "", `invalid annotation configdep.io/kinds="": must be a comma-separated list of configmap, secret and secretproviderclass`},
		{policy.KindsAnnotation, "secret,pod", `invalid annotation configdep.io/kinds="secret,pod": "pod" is none of configmap, secret and secretproviderclass`},
		{policy.LiveVolumesAnnotation, "yes", `invalid annotation configdep.io/live-volumes="yes": must be "true" or "false"`},
		{policy.LiveVolumesAnnotation, "1", `invalid annotation configdep.io/live-volumes="1": must be "true" or "false"`},
		{policy.SettleAnnotation, "5", `invalid annotation configdep.io/settle="5": ` + aDuration},
		{policy.SettleAnnotation, "-1s", `invalid annotation configdep.io/settle="-1s": ` + aDuration},
		{policy.SettleAnnotation, "1d", `invalid annotation configdep.io/settle="1d": ` + aDuration},
		{policy.MinIntervalAnnotation, "9999999h", `invalid annotation configdep.io/min-interval="9999999h": ` + aDuration},
		{policy.StrategyAnnotation, "env-vars", `invalid annotation configdep.io/strategy="env-vars": must be one of annotation, env-var, agent, notify, recreate, in-place`},
		{policy.SourcesAnnotation, "x" + long, `invalid annotation configdep.io/sources="x` + strings.Repeat("ä", 31) + `…": "x` + strings.Repeat("ä", 31) + `…" is not of the form configmap/NAME, secret/NAME or secretproviderclass/NAME`},
		{policy.KindsAnnotation, long, `invalid annotation configdep.io/kinds="` + strings.Repeat("ä", 32) + `…": "` + strings.Repeat("ä", 32) + `…" is none of configmap, secret and secretproviderclass`},
		{policy.SettleAnnotation, long, `invalid annotation configdep.io/settle="` + strings.Repeat("ä", 32) + `…": ` + aDuration},
		{policy.SettleAnnotation, "a" + long, `invalid annotation configdep.io/settle="a` + strings.Repeat("ä", 31) + `…": ` + aDuration},
	} {
		t.Run(tc.key+"="+tc.value, func(t *testing.T) {
			defaults := policy.Defaults{Mode: policy.Auto, Settle: time.Second, MinInterval: 10 * time.Second}
			want := policy.NewPolicy(policy.Annotated{Workload: nil}, defaults)
			want.Problems = []string{tc.problem}
			if tc.key == policy.ReloadAnnotation {
				want.DeclaredBy = policy.ReloadAnnotation
			}
			if diff := cmp.Diff(want, policy.NewPolicy(policy.Annotated{Workload: map[string]string{tc.key: tc.value}}, defaults)); diff != "" {
				t.Errorf("on the workload (-want +got):\n%s", diff)
			}
			got := policy.NewPolicy(policy.Annotated{Namespace: map[string]string{tc.key: tc.value}}, defaults)
			wantProblem := strings.Replace(tc.problem, `": `, `" on the Namespace: `, 1)
			if diff := cmp.Diff([]string{wantProblem}, got.Problems); diff != "" {
				t.Errorf("on the namespace (-want +got):\n%s", diff)
			}
		})
	}
}

// What other clients have to wait for is bounded: patterns are tried on sources while the
// index is locked.
func TestNewPolicy_BoundsPatterns(t *testing.T) {
	var most []string
	for i := range policy.MaxPatterns {
		most = append(most, fmt.Sprintf("secret/s-%d", i))
	}
	of := func(patterns ...string) policy.Policy {
		return policy.NewPolicy(policy.Annotated{Workload: map[string]string{policy.ReloadAnnotation: "auto", policy.ExcludeAnnotation: strings.Join(patterns, ",")}}, policy.Defaults{})
	}
	if p := of(append(most, most...)...); len(p.Problems) != 0 || len(p.Exclude) != policy.MaxPatterns {
		t.Errorf("as many patterns as allowed: got %d patterns and problems %q", len(p.Exclude), p.Problems)
	}
	if p := of(append(most, "secret/s")...); len(p.Problems) != 1 || !strings.Contains(p.Problems[0], "must not name more than 256 sources") {
		t.Errorf("one pattern too many: problems = %q", p.Problems)
	}
	if p := of("secret/" + strings.Repeat("*a", policy.MaxPattern)); len(p.Problems) != 1 {
		t.Errorf("a pattern that is too long: problems = %q", p.Problems)
	}
}

func TestNewPolicy_BoundsGlobs(t *testing.T) {
	var globs []string
	for i := range policy.MaxGlobs {
		globs = append(globs, fmt.Sprintf("secret/s-%d-*", i))
	}
	for what, tt := range map[string]struct {
		patterns []string
		says     string
	}{
		"as many patterns as allowed": {globs, ""},
		"one pattern too many":        {append(slices.Clone(globs), "secret/*"), "must not have more than 32 patterns"},
		"many stars":                  {[]string{"secret/*a*b*c*d*"}, "must not have more than 4 *"},
	} {
		p := policy.NewPolicy(policy.Annotated{Workload: map[string]string{policy.ReloadAnnotation: "auto", policy.SourcesAnnotation: strings.Join(tt.patterns, ",")}}, policy.Defaults{})
		if got := strings.Join(p.Problems, "; "); tt.says == "" && got != "" || !strings.Contains(got, tt.says) {
			t.Errorf("%s: problems = %q", what, got)
		}
	}
}

func TestNewPolicy_NamesEveryInvalidAnnotation(t *testing.T) {
	bad := map[string]string{}
	for _, key := range policy.EveryAnnotation {
		bad[key] = "?"
	}
	problems := policy.NewPolicy(policy.Annotated{Workload: bad}, policy.Defaults{Mode: policy.Off}).Problems
	if len(problems) != len(policy.EveryAnnotation) {
		t.Errorf("got %d problems, want %d: %q", len(problems), len(policy.EveryAnnotation), problems)
	}
	for _, key := range policy.EveryAnnotation {
		if !slices.ContainsFunc(problems, func(p string) bool { return strings.Contains(p, "annotation "+key+`="?": `) }) {
			t.Errorf("no problem names %s", key)
		}
	}
}

// TestNewPolicy_WorkloadsThatAreOffIgnoreInvalidAnnotations: a namespace may have defaults that are invalid, or that
// only a newer version understands. They do not matter to workloads that are off.
func TestNewPolicy_WorkloadsThatAreOffIgnoreInvalidAnnotations(t *testing.T) {
	invalid := map[string]string{policy.SettleAnnotation: "soon", policy.SourcesAnnotation: "secret/db"}
	off := map[string]string{policy.ReloadAnnotation: "off"}
	for name, tc := range map[string]struct {
		workload, namespace map[string]string
		declaredBy          string
	}{
		"by the server's default":         {nil, invalid, "Default"},
		"by its own annotation":           {off, invalid, policy.ReloadAnnotation},
		"by the namespace's annotation":   {invalid, off, "Namespace " + policy.ReloadAnnotation},
		"with configdep's annotations":    {map[string]string{record.ConfigHashAnnotation: "v1.k.h"}, nil, "Default"},
		"without annotations":             {nil, nil, "Default"},
		"with another tool's annotations": {map[string]string{"example.com/reload": "auto"}, nil, "Default"},
	} {
		t.Run(name, func(t *testing.T) {
			want := policy.Policy{Mode: policy.Off, DeclaredBy: tc.declaredBy, Strategy: record.Annotate, Settle: time.Second}
			if diff := cmp.Diff(want, policy.NewPolicy(policy.Annotated{Workload: tc.workload, Namespace: tc.namespace}, policy.Defaults{Mode: policy.Off, Settle: time.Second})); diff != "" {
				t.Errorf("policy (-want +got):\n%s", diff)
			}
		})
	}
}

// Lists that take long are remembered, for all namespaces. One of Reloader is never taken for one of configdep with the same text, whichever comes first.
func TestNewPolicy_ListsAreNotMistakenForOthers(t *testing.T) {
	for first := range 2 {
		var names strings.Builder
		for i := range 20 {
			fmt.Fprintf(&names, ",secret/app-%d-%02d", first, i)
		}
		own := policy.Annotated{Workload: map[string]string{policy.ReloadAnnotation: "listed", policy.SourcesAnnotation: "ConfigMap/web" + names.String()}}
		reloader := policy.Annotated{Workload: map[string]string{"configmap.reloader.stakater.com/reload": "web" + names.String()}}
		all := []policy.Annotated{own, reloader}
		policy.NewPolicy(all[first], policy.Defaults{Mode: policy.Off})
		if p := policy.NewPolicy(all[1-first], policy.Defaults{Mode: policy.Off}); first == 1 && len(p.Sources) != 21 || first == 0 && slices.Contains(p.Sources, dependency.Pattern{Kind: dependency.Secret, Name: "app-0-00"}) {
			t.Errorf("after the other one: %d sources, problems %q", len(p.Sources), p.Problems)
		}
	}
}

// TestNewPolicy_PatternsNameWhatCanExist: a pattern that cannot match the name of any object, such as one with an
// upper-case letter, is invalid.
func TestNewPolicy_PatternsNameWhatCanExist(t *testing.T) {
	for name, possible := range map[string]bool{
		"db": true, "0": true, "a.b-c": true, "*": true, "feature-*": true, "*-db": true, "*.*": true, strings.Repeat("a", 252) + "*": true,
		"-app": false, "app-": false, ".app": false, "a..b": false, "a.-b": false, "Db": false, "a_b": false, "ä": false,
		"UPPER-*": false, "a_b*": false, "*..*": false, "-*": false, "*-": false, "*.": false,
		"db-?": false, "[a-z]": false, `\a`: false, `\*`: false, "^a": false, "shop/*": false, strings.Repeat("a", 253) + "*": false,
	} {
		p := policy.NewPolicy(policy.Annotated{Workload: map[string]string{policy.ReloadAnnotation: "auto", policy.SourcesAnnotation: "secret/" + name}}, policy.Defaults{})
		if (len(p.Problems) == 0) != possible {
			t.Errorf("secret/%s: problems = %q", name, p.Problems)
		}
	}
}
