// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"regexp/syntax"
	"strings"
	"testing"
)

func TestRegexpPattern(t *testing.T) {
	for expression, want := range map[string]string{
		"(app|web)-config":      "^(?:(app|web)-config)$",
		"app-[0-9]+":            "^(?:app-[0-9]+)$",
		"":                      "^(?:)$",
		strings.Repeat("a", 99): "^(?:" + strings.Repeat("a", 99) + ")$",
	} {
		p, err := RegexpPattern(Secret, expression)
		if err != nil || p != (Pattern{Secret, want}) || p.Work() != 1+len(expression) {
			t.Errorf("%s: %+v, which counts as %d, error %v", expression, p, p.Work(), err)
		}
	}
}

func TestRegexpPattern_Invalid(t *testing.T) {
	for expression, want := range map[string]string{
		"app-(":                  "is not a regular expression: missing closing )",
		"*app":                   "is not a regular expression: missing argument to repetition operator",
		"a**":                    "is not a regular expression: invalid nested repetition operator",
		"(?i)app":                "must not have the flag i: names are in lower case",
		"a(?si:b)":               "must not have the flag i: names are in lower case",
		`\pL+`:                   "is not a regular expression: invalid escape sequence",
		"a{2}":                   "must not have a {: write out what is repeated, or use * or +",
		`\x{61}`:                 "must not have a {: write out what is repeated, or use * or +",
		"(?=app)":                "is not a regular expression: invalid or unsupported Perl syntax",
		strings.Repeat("a", 100): "must not have more than 99 bytes",
	} {
		if _, err := RegexpPattern(Secret, expression); err == nil || err.Error() != want {
			t.Errorf("pattern of %q: %v, want %s", expression, err, want)
		}
	}
}

// What is compiled is not much longer than the text, which is what a pattern counts as.
func FuzzRegexpPattern(f *testing.F) {
	for _, expression := range []string{"app|web", "((a*)*)*", "()()*()*", "(|()(|()))", `[^a][\w-][[:^alpha:]]`, "(((((a)?)?)?)?)?", `\ba$|^b`, "(?s-m:.)"} {
		f.Add(expression)
	}
	f.Fuzz(func(t *testing.T, expression string) {
		p, err := RegexpPattern(Secret, expression)
		if err != nil {
			return
		}
		parsed, err := syntax.Parse(p.Name, syntax.Perl)
		if err != nil {
			return // as \Q quotes what is behind the expression, too
		}
		program, err := syntax.Compile(parsed.Simplify())
		if err != nil {
			t.Fatal(err)
		}
		if n := len(program.Inst); n > 10+2*len(expression) {
			t.Errorf("%q has %d instructions", expression, n)
		}
	})
}
