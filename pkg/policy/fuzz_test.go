// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/record"
)

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
		if record.Interval(d, 3) < d {
			t.Errorf("interval = %v, want at least %v", record.Interval(d, 3), d)
		}
	})
}

func FuzzParsePatterns(f *testing.F) {
	for _, seed := range []string{"secret/db", "configmap/*, secret/a-*-b, secret/[a-z]?", "secret/a/b", `secret/\`, "secret/[", ",,"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		patterns, err := parsePatterns(value)
		if err != nil {
			if patterns != nil {
				t.Errorf("patterns = %v with an error, want none", patterns)
			}
			return
		}
		var texts []string
		for _, p := range patterns {
			if !p.Kind.Observed() || p.Name == "" || strings.ContainsAny(p.Name, "/,") {
				t.Errorf("parsing %q returned the invalid pattern %+v", value, p)
			}
			if !p.Glob() && !p.Matches(p.Kind, p.Name) {
				t.Errorf("pattern %+v does not match its own name", p)
			}
			texts = append(texts, string(p.Kind)+"/"+p.Name)
		}
		again, err := parsePatterns(strings.Join(texts, ","))
		if err != nil || !cmp.Equal(patterns, again) {
			t.Errorf("%q is parsed as %v, which is written and parsed again as %v, %v", value, patterns, again, err)
		}
	})
}

// The pattern of a regular expression matches the same names, also if it is a glob.
func FuzzRegexpsOfKind(f *testing.F) {
	for _, expression := range []string{"app|web", "app-.*", "app-.+", "a?b", "^a.*-.*b$", "^a$", "(a|b)(c|d)", "a.c-.*", ".*.*.*.*.*", `\x61`, "a$b", "(|a)b", "-.*"} {
		for _, name := range []string{"app", "web", "app-", "app-x", "b", "ab", "a-b", "a", "bd", "a.c", "a.c-1", "abc-1"} {
			f.Add(expression, name)
		}
	}
	f.Fuzz(func(t *testing.T, expression, name string) {
		all, err := regexpsOfKind(dependency.Secret, expression)
		if err != nil || strings.Contains(expression, ",") || strings.TrimSpace(expression) != expression || plainName.MatchString(expression) ||
			!PossibleName(name) || strings.Contains(name, "*") {
			return
		}
		re, err := regexp.Compile("^(?:" + expression + ")$")
		if err != nil {
			return // the parentheses of the expression do not match those around it
		}
		matcher := dependency.NewMatcher(all.patterns)
		if got, want := matcher.Matches(dependency.Secret, name), re.MatchString(name); got != want {
			t.Errorf("%q matches %q: %t, want %t; patterns %v", expression, name, got, want, all.patterns)
		}
	})
}

// FuzzNewPolicy: whatever two annotations of any tool say, on the workload, its pod template or its namespace, a policy is
// valid, or says what is wrong.
func FuzzNewPolicy(f *testing.F) {
	keys := slices.Concat(EveryAnnotation, []string{
		podReloaderConfigMaps, podReloaderSecrets, waveRestart, waveConfigMaps, waveSecrets, rolloutStrategy,
	})
	names := ReloaderAnnotations{}.WithDefaults()
	keys = append(keys, names.ConfigMap, names.Secret, names.Auto, names.ConfigMapAuto, names.SecretAuto, names.Search, names.PausePeriod, names.PausedAt,
		"secrets.exclude.reloader.stakater.com/reload")
	for i := range keys {
		f.Add(uint8(i), "true", uint8(i+1), "soon", uint8(0))
		f.Add(uint8(i), "db,app-(", uint8(i+1), "auto", uint8(1))
		f.Add(uint8(i), "off", uint8(i+2), "secret/db", uint8(2))
	}
	f.Fuzz(func(t *testing.T, i uint8, a string, j uint8, b string, where uint8) {
		annotated := Annotated{Workload: map[string]string{keys[int(i)%len(keys)]: a}, InNamespace: "shop"}
		switch other := map[string]string{keys[int(j)%len(keys)]: b}; where % 3 {
		case 0:
			maps.Copy(annotated.Workload, other)
		case 1:
			annotated.Namespace = other
		default:
			annotated.Template = other
		}
		p := NewPolicy(annotated, Defaults{Mode: Auto, Settle: time.Second})
		_, err := ParseMode(string(p.Mode))
		if err != nil || p.Settle < 0 || p.MinInterval < 0 || p.Pause.Period < 0 || !slices.Contains(record.Strategies(), p.Strategy) || p.DeclaredBy == "" {
			t.Errorf("%+v leads to the invalid policy %+v", annotated, p)
		}
		for _, problem := range p.Problems {
			if len(problem) > 800 || !strings.HasPrefix(problem, "invalid annotation ") && !strings.HasPrefix(problem, "annotation ") {
				t.Errorf("%+v leads to the problem %q", annotated, problem)
			}
		}
	})
}
