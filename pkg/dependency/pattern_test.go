// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"math/rand/v2"
	"path"
	"slices"
	"testing"
)

func TestPatternNamesSources(t *testing.T) {
	for _, tc := range []struct {
		pattern string
		glob    bool
		yes, no []string
	}{
		{"db", false, []string{"db"}, []string{"", "d", "dbx", "xdb", "DB"}},
		{"feature-*", true, []string{"feature-", "feature-1", "feature-a.b-c"}, []string{"feature", "xfeature-1"}},
		{"*", true, []string{"", "a", "a.b"}, nil},
		{"a*c*", true, []string{"ac", "abc", "accd"}, []string{"a", "ab", "bac"}},
		{"a?c", false, []string{"a?c"}, []string{"abc"}},
		{"a.b", false, []string{"a.b"}, []string{"axb"}},
		{"^(?:v[0-9])$", true, []string{"v1", "v9"}, []string{"va", "v10", "v"}},
		{"^(?:v[0-9)$", true, nil, []string{"v1", "v[0-9", ""}},
	} {
		p := Pattern{Kind: Secret, Name: tc.pattern}
		if p.Glob() != tc.glob {
			t.Errorf("%q: Glob = %v, want %v", tc.pattern, p.Glob(), tc.glob)
		}
		for _, name := range tc.yes {
			if !p.Matches(Secret, name) {
				t.Errorf("%q does not match %q", tc.pattern, name)
			}
			if p.Matches(ConfigMap, name) {
				t.Errorf("%q matches a ConfigMap, want only Secrets", tc.pattern)
			}
		}
		for _, name := range tc.no {
			if p.Matches(Secret, name) {
				t.Errorf("%q matches %q", tc.pattern, name)
			}
		}
	}
}

// A Matcher finds the same patterns as path.Match, where only * is special.
func TestMatcher(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	text := func(alphabet string, most int) string {
		b := make([]byte, r.IntN(most+1))
		for i := range b {
			b[i] = alphabet[r.IntN(len(alphabet))]
		}
		return string(b)
	}
	matched := 0
	for range 50_000 {
		patterns := []Pattern{{Secret, text("aab**", 6)}, {Secret, text("ab*.-", 6)}, {ConfigMap, text("ab*", 4)}}
		m := NewMatcher(patterns)
		name := text("aab", 8)
		var named bool
		var want []int
		globs := 0
		for _, p := range patterns {
			yes, err := path.Match(p.Name, name)
			if err != nil {
				t.Fatal(err)
			}
			if yes = yes && p.Kind == Secret; yes != p.Matches(Secret, name) {
				t.Fatalf("pattern %q, name %q: Matches = %v, want %v", p, name, !yes, yes)
			}
			if p.Glob() {
				if yes {
					want = append(want, globs)
				}
				globs++
				continue
			}
			named = named || yes
		}
		if got := m.Globs(Secret, name, nil); !slices.Equal(got, want) || m.Names(Secret, name) != named || m.Matches(Secret, name) != (named || len(want) > 0) {
			t.Fatalf("patterns %q, name %q: globs = %v, want %v; by name = %v, want %v", patterns, name, got, want, m.Names(Secret, name), named)
		}
		matched += len(want)
	}
	if matched < 5_000 {
		t.Errorf("only %d globs matched", matched)
	}
}
