// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/configdep/configdep/pkg/dependency"
)

// everyAnnotation is what users may set on workloads and namespaces.
var everyAnnotation = []string{
	ReloadAnnotation, SourcesAnnotation, ExcludeAnnotation, KindsAnnotation,
	LiveVolumesAnnotation, SettleAnnotation, MinIntervalAnnotation, StrategyAnnotation,
}

func TestAnnotationValues(t *testing.T) {
	defaults := Defaults{Mode: Auto, Settle: time.Second, MinInterval: 10 * time.Second}
	base := Policy{Mode: Auto, DeclaredBy: "Default", Strategy: Annotate, Settle: time.Second, MinInterval: 10 * time.Second}
	with := func(f func(*Policy)) Policy {
		p := base
		f(&p)
		return p
	}
	declared := func(m Mode) Policy {
		return with(func(p *Policy) { p.Mode, p.DeclaredBy = m, "configdep.io/reload" })
	}
	sources := func(patterns ...dependency.Pattern) Policy {
		return with(func(p *Policy) { p.Sources = patterns })
	}
	db := dependency.Pattern{Kind: dependency.Secret, Name: "db"}
	features := dependency.Pattern{Kind: dependency.ConfigMap, Name: "feature-*"}
	for _, tc := range []struct {
		key, value string
		want       Policy
	}{
		{ReloadAnnotation, "auto", declared(Auto)},
		{ReloadAnnotation, "matched", declared(Matched)},
		{ReloadAnnotation, "listed", declared(Listed)},
		{ReloadAnnotation, "off", declared(Off)},
		{ReloadAnnotation, " auto\n", declared(Auto)},
		{SourcesAnnotation, "secret/db", sources(db)},
		{SourcesAnnotation, " Secret/db ,, CONFIGMAP/feature-*\n", sources(db, features)},
		{SourcesAnnotation, "secret/db, secret/db", sources(db)},
		{SourcesAnnotation, "", base},
		{SourcesAnnotation, " , ", base},
		{ExcludeAnnotation, "configmap/feature-*", with(func(p *Policy) { p.Exclude = []dependency.Pattern{features} })},
		{KindsAnnotation, "secret", with(func(p *Policy) { p.Kinds = []dependency.SourceKind{dependency.Secret} })},
		{KindsAnnotation, "secret,secret", with(func(p *Policy) { p.Kinds = []dependency.SourceKind{dependency.Secret} })},
		{KindsAnnotation, "Configmap, secret", with(func(p *Policy) {
			p.Kinds = []dependency.SourceKind{dependency.ConfigMap, dependency.Secret}
		})},
		{LiveVolumesAnnotation, "true", with(func(p *Policy) { p.LiveVolumes = true })},
		{LiveVolumesAnnotation, " false ", base},
		{SettleAnnotation, "0", with(func(p *Policy) { p.Settle = 0 })},
		{SettleAnnotation, "500ms", with(func(p *Policy) { p.Settle = 500 * time.Millisecond })},
		{SettleAnnotation, "1h30m", with(func(p *Policy) { p.Settle = 90 * time.Minute })},
		{MinIntervalAnnotation, "5m", with(func(p *Policy) { p.MinInterval = 5 * time.Minute })},
		{MinIntervalAnnotation, "0", with(func(p *Policy) { p.MinInterval = 0 })},
		{StrategyAnnotation, "annotation", base},
		{StrategyAnnotation, "recreate", with(func(p *Policy) { p.Strategy = Recreate })},
		{"configdep.io/config-hash", "auto", base},
		{"configdep.io/relaod", "auto", base},
	} {
		t.Run(tc.key+"="+tc.value, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, NewPolicy(map[string]string{tc.key: tc.value}, nil, defaults)); diff != "" {
				t.Errorf("on the workload (-want +got):\n%s", diff)
			}
			want := tc.want
			if tc.key == ReloadAnnotation {
				want.DeclaredBy = "Namespace configdep.io/reload"
			}
			if diff := cmp.Diff(want, NewPolicy(nil, map[string]string{tc.key: tc.value}, defaults)); diff != "" {
				t.Errorf("on the namespace (-want +got):\n%s", diff)
			}
		})
	}
}

// TestInvalidValueIsToldAndNeverTakenForAnother: the message names where the value
// stands, the value, and what is allowed.
func TestInvalidValueIsToldAndNeverTakenForAnother(t *testing.T) {
	const aDuration = `must be a duration such as "0", "500ms", "30s" or "5m"`
	long := strings.Repeat("ä", 40) // 80 bytes
	for _, tc := range []struct{ key, value, problem string }{
		{ReloadAnnotation, "Auto", `invalid annotation configdep.io/reload="Auto": must be one of auto, matched, listed, off`},
		{ReloadAnnotation, "", `invalid annotation configdep.io/reload="": must be one of auto, matched, listed, off`},
		{ReloadAnnotation, "true", `invalid annotation configdep.io/reload="true": must be one of auto, matched, listed, off`},
		{SourcesAnnotation, "db", `invalid annotation configdep.io/sources="db": "db" is not of the form configmap/NAME or secret/NAME`},
		{SourcesAnnotation, "secret/db, secret/", `invalid annotation configdep.io/sources="secret/db, secret/": "secret/" is not of the form configmap/NAME or secret/NAME`},
		{SourcesAnnotation, "pod/web", `invalid annotation configdep.io/sources="pod/web": "pod" is neither configmap nor secret`},
		{SourcesAnnotation, "secret/shop/db", `invalid annotation configdep.io/sources="secret/shop/db": "shop/db" is neither a name that an object can have nor a pattern of such names`},
		{ExcludeAnnotation, "secret/[a-", `invalid annotation configdep.io/exclude="secret/[a-": "[a-" is neither a name that an object can have nor a pattern of such names`},
		{ExcludeAnnotation, `configmap/a\`, `invalid annotation configdep.io/exclude="configmap/a\\": "a\\" is neither a name that an object can have nor a pattern of such names`},
		{KindsAnnotation, "", `invalid annotation configdep.io/kinds="": must be a comma-separated list of configmap and secret`},
		{KindsAnnotation, "secret,pod", `invalid annotation configdep.io/kinds="secret,pod": "pod" is neither configmap nor secret`},
		{LiveVolumesAnnotation, "yes", `invalid annotation configdep.io/live-volumes="yes": must be "true" or "false"`},
		{LiveVolumesAnnotation, "1", `invalid annotation configdep.io/live-volumes="1": must be "true" or "false"`},
		{SettleAnnotation, "5", `invalid annotation configdep.io/settle="5": ` + aDuration},
		{SettleAnnotation, "-1s", `invalid annotation configdep.io/settle="-1s": ` + aDuration},
		{SettleAnnotation, "1d", `invalid annotation configdep.io/settle="1d": ` + aDuration},
		{MinIntervalAnnotation, "9999999h", `invalid annotation configdep.io/min-interval="9999999h": ` + aDuration},
		{StrategyAnnotation, "env-var", `invalid annotation configdep.io/strategy="env-var": must be one of annotation, recreate`},
		{SourcesAnnotation, "x" + long, `invalid annotation configdep.io/sources="x` + strings.Repeat("ä", 31) + `…": "x` + strings.Repeat("ä", 31) + `…" is not of the form configmap/NAME or secret/NAME`},
		{KindsAnnotation, long, `invalid annotation configdep.io/kinds="` + strings.Repeat("ä", 32) + `…": "` + strings.Repeat("ä", 32) + `…" is neither configmap nor secret`},
		{SettleAnnotation, long, `invalid annotation configdep.io/settle="` + strings.Repeat("ä", 32) + `…": ` + aDuration},
		{SettleAnnotation, "a" + long, `invalid annotation configdep.io/settle="a` + strings.Repeat("ä", 31) + `…": ` + aDuration},
	} {
		t.Run(tc.key+"="+tc.value, func(t *testing.T) {
			defaults := Defaults{Mode: Auto, Settle: time.Second, MinInterval: 10 * time.Second}
			want := NewPolicy(nil, nil, defaults)
			want.Problems = []string{tc.problem}
			if tc.key == ReloadAnnotation {
				want.DeclaredBy = ReloadAnnotation
			}
			if diff := cmp.Diff(want, NewPolicy(map[string]string{tc.key: tc.value}, nil, defaults)); diff != "" {
				t.Errorf("on the workload (-want +got):\n%s", diff)
			}
			got := NewPolicy(nil, map[string]string{tc.key: tc.value}, defaults)
			wantProblem := strings.Replace(tc.problem, `": `, `" on the Namespace: `, 1)
			if tc.key == ReloadAnnotation { // a label says the same
				wantProblem = strings.Replace(wantProblem, "annotation", "annotation or label", 1)
			}
			if diff := cmp.Diff([]string{wantProblem}, got.Problems); diff != "" {
				t.Errorf("on the namespace (-want +got):\n%s", diff)
			}
		})
	}
}

// What other clients have to wait for is bounded: patterns are tried on sources while the
// index is locked.
func TestPatternsAreBounded(t *testing.T) {
	var most []string
	for i := range maxPatterns {
		most = append(most, fmt.Sprintf("secret/s-%d", i))
	}
	of := func(patterns ...string) Policy {
		return NewPolicy(map[string]string{ReloadAnnotation: "auto", ExcludeAnnotation: strings.Join(patterns, ",")}, nil, Defaults{})
	}
	if p := of(append(most, most...)...); len(p.Problems) != 0 || len(p.Exclude) != maxPatterns {
		t.Errorf("%d patterns, and the problems %q", len(p.Exclude), p.Problems)
	}
	if p := of(append(most, "secret/s")...); len(p.Problems) != 1 || !strings.Contains(p.Problems[0], "must not name more than 256 sources") {
		t.Errorf("of one more, the problems are %q", p.Problems)
	}
	if p := of("secret/" + strings.Repeat("*a", maxPattern)); len(p.Problems) != 1 {
		t.Errorf("of a long one, the problems are %q", p.Problems)
	}
}

func TestGlobsAreBounded(t *testing.T) {
	var globs []string
	for i := range maxGlobs {
		globs = append(globs, fmt.Sprintf("secret/s-%d-*", i))
	}
	for what, tt := range map[string]struct {
		patterns []string
		says     string
	}{
		"as many as there may be": {globs, ""},
		"one more":                {append(slices.Clone(globs), "secret/*"), "must not have more than 32 patterns"},
		"many stars":              {[]string{"secret/*a*b*c*d*"}, "must not have more than 4 *"},
	} {
		p := NewPolicy(map[string]string{ReloadAnnotation: "auto", SourcesAnnotation: strings.Join(tt.patterns, ",")}, nil, Defaults{})
		if got := strings.Join(p.Problems, "; "); tt.says == "" && got != "" || !strings.Contains(got, tt.says) {
			t.Errorf("%s: the problems are %q", what, got)
		}
	}

	pod := corev1.PodSpec{Containers: []corev1.Container{{Name: "app"}}}
	for i := range dependency.MaxSources {
		pod.Containers[0].EnvFrom = append(pod.Containers[0].EnvFrom, corev1.EnvFromSource{
			SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: fmt.Sprint("s-", i)}, Optional: new(true)},
		})
	}
	x := newWorld(t, pod)
	x.annotate(SourcesAnnotation, strings.Join(globs, ","), ExcludeAnnotation, strings.Join(globs, ","))
	if d := x.decide(); d.State != Blocked || d.Reason != ReasonTooManyPatterns || !strings.Contains(d.Message, "Too many patterns: configdep.io/sources and configdep.io/exclude have 64, counted as 64 (one with ? or [ ] counts as 1 plus its length); times the 500 sources") {
		t.Errorf("it is %+v", d)
	}
	x.annotate(SettleAnnotation, "soon") // which is to be mended first
	if d := x.decide(); d.State != Blocked || d.Reason != ReasonInvalidAnnotation || !strings.Contains(d.Message, "Invalid annotation configdep.io/settle") || !strings.Contains(d.Message, "too many patterns") {
		t.Errorf("with an invalid annotation as well, it is %+v", d)
	}
}

func TestEveryInvalidAnnotationIsNamed(t *testing.T) {
	bad := map[string]string{}
	for _, key := range everyAnnotation {
		bad[key] = "?"
	}
	problems := NewPolicy(bad, nil, Defaults{Mode: Off}).Problems
	if len(problems) != len(everyAnnotation) {
		t.Errorf("%d problems are told, want %d: %q", len(problems), len(everyAnnotation), problems)
	}
	for _, key := range everyAnnotation {
		if !slices.ContainsFunc(problems, func(p string) bool { return strings.Contains(p, "annotation "+key+`="?": `) }) {
			t.Errorf("nothing is told of %s", key)
		}
	}
}

// TestWorkloadsThatAreOffIgnoreInvalidAnnotations: a namespace may hold defaults that are invalid, or
// that a newer version understands, for workloads that are off anyway.
func TestWorkloadsThatAreOffIgnoreInvalidAnnotations(t *testing.T) {
	invalid := map[string]string{SettleAnnotation: "soon", SourcesAnnotation: "secret/db"}
	off := map[string]string{ReloadAnnotation: "off"}
	for name, tc := range map[string]struct {
		workload, namespace map[string]string
		declaredBy          string
	}{
		"by the server's default":   {nil, invalid, "Default"},
		"by its own annotation":     {off, invalid, ReloadAnnotation},
		"by that of the namespace":  {invalid, off, "Namespace " + ReloadAnnotation},
		"with annotations of ours":  {map[string]string{ConfigHashAnnotation: "v1.k.h"}, nil, "Default"},
		"with none, anywhere":       {nil, nil, "Default"},
		"with annotations of other": {map[string]string{"example.com/reload": "auto"}, nil, "Default"},
	} {
		t.Run(name, func(t *testing.T) {
			want := Policy{Mode: Off, DeclaredBy: tc.declaredBy, Strategy: Annotate, Settle: time.Second}
			if diff := cmp.Diff(want, NewPolicy(tc.workload, tc.namespace, Defaults{Mode: Off, Settle: time.Second})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseModeIsStrict(t *testing.T) {
	for value, want := range map[string]Mode{"off": Off, "auto": Auto, "matched": Matched, "listed": Listed} {
		if got, err := ParseMode(value); got != want || err != nil {
			t.Errorf("ParseMode(%q) = %q, %v", value, got, err)
		}
	}
	for _, value := range []string{"", "AUTO", " auto", "on", "auto,listed"} {
		if got, err := ParseMode(value); got != "" || err == nil {
			t.Errorf("ParseMode(%q) = %q, %v; want an error", value, got, err)
		}
	}
}

func FuzzParseMode(f *testing.F) {
	f.Add("auto")
	f.Fuzz(func(t *testing.T, value string) {
		mode, err := ParseMode(value)
		if (err == nil) != (string(mode) == value && value != "") {
			t.Errorf("ParseMode(%q) = %q, %v", value, mode, err)
		}
	})
}

func FuzzParseDuration(f *testing.F) {
	for _, seed := range []string{"0", "500ms", "-1s", "1h30m", "1e9s", "9999999h"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		d, err := parseDuration(value)
		if want, wantErr := time.ParseDuration(value); (err == nil) != (wantErr == nil && want >= 0) || err == nil && d != want {
			t.Errorf("parseDuration(%q) = %v, %v; want %v, %v", value, d, err, want, wantErr)
		}
		// A restart must not be due before the content has changed, however long the time.
		if at := settledAt(Observed{StaleSince: epoch}, epoch, d, settleLimit); !at.Equal(epoch.Add(d)) {
			t.Errorf("content that changed at %v has settled at %v, with settle %v", epoch, at, d)
		}
		if interval(d, 3) < d {
			t.Errorf("the interval is %v, less than the minimum of %v", interval(d, 3), d)
		}
	})
}

func FuzzParsePatterns(f *testing.F) {
	for _, seed := range []string{"secret/db", "configmap/*, secret/[a-z]?", "secret/a/b", `secret/\`, "secret/[", ",,"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		patterns, err := parsePatterns(value)
		if err != nil {
			if patterns != nil {
				t.Errorf("an error came with %v", patterns)
			}
			return
		}
		var texts []string
		for _, p := range patterns {
			if !p.Kind.Observed() || p.Name == "" || strings.ContainsAny(p.Name, "/,") {
				t.Errorf("%q led to %+v", value, p)
			}
			if _, err := path.Match(p.Name, "anything"); err != nil {
				t.Errorf("%q led to the malformed glob %q", value, p.Name)
			}
			if !p.Glob() && !p.Matches(p.Kind, p.Name) {
				t.Errorf("%+v does not match its own name", p)
			}
			texts = append(texts, string(p.Kind)+"/"+p.Name)
		}
		again, err := parsePatterns(strings.Join(texts, ","))
		if err != nil || !cmp.Equal(patterns, again) {
			t.Errorf("%q is read as %v, and what that is written as, as %v, %v", value, patterns, again, err)
		}
	})
}

func FuzzOf(f *testing.F) {
	f.Add(uint8(0), "auto", uint8(1), "secret/db", true)
	f.Add(uint8(0), "off", uint8(5), "soon", false)
	f.Fuzz(func(t *testing.T, i uint8, a string, j uint8, b string, inherit bool) {
		workload := map[string]string{everyAnnotation[int(i)%len(everyAnnotation)]: a}
		other := map[string]string{everyAnnotation[int(j)%len(everyAnnotation)]: b}
		if !inherit {
			maps.Copy(workload, other)
			other = nil
		}
		p := NewPolicy(workload, other, Defaults{Mode: Auto, Settle: time.Second})
		if _, err := ParseMode(string(p.Mode)); err != nil || p.Settle < 0 || p.MinInterval < 0 || p.Strategy != Annotate && p.Strategy != Recreate {
			t.Errorf("%v and %v led to %+v", workload, other, p)
		}
		for _, problem := range p.Problems {
			if len(problem) > 800 || !strings.HasPrefix(problem, "the annotation ") {
				t.Errorf("%v and %v led to the problem %q", workload, other, problem)
			}
		}
	})
}

// TestPatternsNameWhatCanExist: a pattern that no name of an object matches is a mistake, such as a letter in upper case,
// and is told.
func TestPatternsNameWhatCanExist(t *testing.T) {
	for name, possible := range map[string]bool{
		"db": true, "0": true, "a.b-c": true, "*": true, "?": true, "[a-z]": true, "feature-*": true, "*-db": true, "*.*": true,
		"[^a]b": true, `\a`: true, `[\]a]`: true, "a-[0-9]-b": true, strings.Repeat("a", 252) + "*": true,
		"-app": false, "app-": false, ".app": false, "a..b": false, "a.-b": false, "Db": false, "a_b": false, "ä": false,
		"UPPER-*": false, "a_b*": false, "*..*": false, "-*": false, "*-": false, "*.": false, "*_[a-z]": false,
		`\*`: false, `\A*`: false, `\[a*`: false, "[a": false, "shop/*": false, strings.Repeat("a", 253) + "*": false,
	} {
		p := NewPolicy(map[string]string{ReloadAnnotation: "auto", SourcesAnnotation: "secret/" + name}, nil, Defaults{})
		if (len(p.Problems) == 0) != possible {
			t.Errorf("of secret/%s, the problems are %q", name, p.Problems)
		}
	}
}
