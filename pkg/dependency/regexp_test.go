// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/configdep/configdep/pkg/dependency"
)

func TestPatternsOfRegexp(t *testing.T) {
	for expression, want := range map[string][]string{
		"db":                      {"db"},
		"^db$":                    {"db"},
		"app|web":                 {"app", "web"},
		"(app|web)-config":        {"app-config", "web-config"},
		"app-config-.*":           {"app-config-*"},
		"app-.+":                  {"app-?*"},
		".*":                      {"*"},
		"app-?":                   {"app", "app-"},
		"app-[ab]":                {"app-a", "app-b"},
		"app.config":              {"app?config"},
		"a{2}":                    {"^(?:a{2})$"},
		"app-[0-9]+":              {"^(?:app-[0-9]+)$"},
		"a.*b.*c.*d.*e.*":         {"^(?:a.*b.*c.*d.*e.*)$"},
		`app\*`:                   {`^(?:app\*)$`},
		"[a-f][a-f][a-f]":         {"^(?:[a-f][a-f][a-f])$"},
		"app$|web":                {"^(?:app$|web)$"},
		"":                        {""},
		strings.Repeat("a", 247):  {strings.Repeat("a", 247)},
		"(app|web)?-(config|env)": {"-config", "-env", "app-config", "app-env", "web-config", "web-env"},
	} {
		patterns, err := dependency.PatternsOfRegexp(dependency.Secret, expression)
		if err != nil {
			t.Errorf("%s: %v", expression, err)
			continue
		}
		var names []string
		for _, p := range patterns {
			names = append(names, p.Name)
			if p.Kind != dependency.Secret {
				t.Errorf("%s: a pattern of a %s, want a Secret", expression, p.Kind)
			}
		}
		if diff := cmp.Diff(want, names); diff != "" {
			t.Errorf("patterns of %q (-want +got):\n%s", expression, diff)
		}
	}
}

func TestPatternsOfRegexp_Invalid(t *testing.T) {
	for expression, want := range map[string]string{
		"app-(":                       "is not a regular expression: missing closing )",
		"*app":                        "is not a regular expression: missing argument to repetition operator",
		"(?i)app":                     "must not have the flag i: names are in lower case",
		"a(?si:b)":                    "must not have the flag i: names are in lower case",
		`\pL+`:                        "is not a regular expression: invalid escape sequence",
		"(a{1000}){2}":                "is not a regular expression: invalid repeat count",
		strings.Repeat("a{1000}", 35): "is too complex: it counts as 35003, and no pattern may count as more than 100",
		"(?=app)":                     "is not a regular expression: invalid or unsupported Perl syntax",
		strings.Repeat("a", 248):      "must not have more than 247 bytes",
		"[a-z0-9]{50}-[a-z]{50}":      "is too complex: it counts as 104, and no pattern may count as more than 100",
	} {
		if _, err := dependency.PatternsOfRegexp(dependency.Secret, expression); err == nil || err.Error() != want {
			t.Errorf("patterns of %q: %v, want %s", expression, err, want)
		}
	}
}
