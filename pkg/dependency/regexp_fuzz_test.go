// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"regexp"
	"strings"
	"testing"
)

// What stands for a regular expression must match the same names.
func FuzzPatternsOfRegexp(f *testing.F) {
	for _, expression := range []string{"app|web", "app-.*", "app-.+", "a?b", "a[bc]d", "^a$", "(a|b)(c|d)", "(?i)a", "a.c", `\x61`, "a$b", "(|a)b"} {
		for _, name := range []string{"app", "web", "app-", "app-x", "b", "ab", "abd", "a", "bd", "A", "a.c", ""} {
			f.Add(expression, name)
		}
	}
	f.Fuzz(func(t *testing.T, expression, name string) {
		patterns, err := PatternsOfRegexp(ConfigMap, expression)
		if err != nil || strings.ContainsAny(name, "/\n") { // in no name of an object
			return
		}
		re, err := regexp.Compile("^(?:" + expression + ")$")
		if err != nil {
			return // the parentheses of the expression do not match those around it
		}
		matcher, matched := NewMatcher(patterns), false
		for _, p := range patterns {
			matched = matched || p.Matches(ConfigMap, name)
		}
		if want := re.MatchString(name); matched != want || matcher.Matches(ConfigMap, name) != want {
			t.Errorf("%q matches %q: %t, and with a Matcher %t; want %t", expression, name, matched, matcher.Matches(ConfigMap, name), want)
		}
	})
}
