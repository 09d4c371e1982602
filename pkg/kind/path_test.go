// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParsePath(t *testing.T) {
	for text, want := range map[string]struct{ canonical, err string }{
		".spec.template":                   {".spec.template", ""},
		"['spec']['template']":             {".spec.template", ""},
		".a['b.c/d'].e-f_9":                {".a['b.c/d'].e-f_9", ""},
		".a['b[*]c']":                      {".a['b[*]c']", ""},
		".a['ü']":                          {".a['ü']", ""},
		"[*]":                              {"[*]", ""},
		".a[*].b[*][*]":                    {".a[*].b[*][*]", ""},
		".A.Z.z.0":                         {".A.Z.z.0", ""},
		"":                                 {"", "must not be empty: allowed are .name, ['any name'] and [*]"},
		"spec":                             {"", `at byte 1: allowed are .name, ['any name'] and [*]; this is "s"`},
		"üx":                               {"", `at byte 1: allowed are .name, ['any name'] and [*]; this is "ü"`},
		".a.b c":                           {"", `at byte 5: allowed are .name, ['any name'] and [*]; this is " "`},
		".a..b":                            {"", `at byte 3: a name is expected after "."; names with other characters than letters, digits, "-" and "_" are written as ['any name']`},
		".a.":                              {"", `at byte 3: a name is expected after "."; names with other characters than letters, digits, "-" and "_" are written as ['any name']`},
		".a[0]":                            {"", `at byte 3: allowed are .name, ['any name'] and [*]; this is "["`},
		".a[?(@.b)]":                       {"", `at byte 3: allowed are .name, ['any name'] and [*]; this is "["`},
		".a['b":                            {"", "at byte 3: the name has no end: '] is expected"},
		".a['']":                           {"", "at byte 3: the name must not be empty"},
		".a['b'c']":                        {"", "at byte 3: the name must not contain ' or control characters"},
		".a['b\nc']":                       {"", "at byte 3: the name must not contain ' or control characters"},
		"[*][*][*][*]":                     {"", "must have at most 3 [*]"},
		".a\xff":                           {"", "must be UTF-8"},
		strings.Repeat(".a", 32):           {strings.Repeat(".a", 32), ""},
		strings.Repeat(".a", 33):           {"", "must have at most 32 names and [*]"},
		"." + strings.Repeat("a", 511):     {"." + strings.Repeat("a", 511), ""},
		"." + strings.Repeat("a", 512):     {"", "must have at most 512 bytes"},
		"['" + strings.Repeat("x", 512):    {"", "must have at most 512 bytes"},
		".spec.users[*]['secret.name'][*]": {".spec.users[*]['secret.name'][*]", ""},
	} {
		p, err := ParsePath(text)
		if got := p.String(); got != want.canonical || err == nil != (want.err == "") || err != nil && err.Error() != want.err {
			t.Errorf("%q: %q, %v; want %q, %s", text, got, err, want.canonical, want.err)
		}
		if p.IsZero() != (err != nil) {
			t.Errorf("%q: IsZero = %v", text, p.IsZero())
		}
	}
}

func mustPath(t testing.TB, text string) Path {
	t.Helper()
	p, err := ParsePath(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return p
}

func TestPath_Names(t *testing.T) {
	names, err := mustPath(t, ".a['b.c'].d").Names()
	if diff := cmp.Diff([]string{"a", "b.c", "d"}, names); diff != "" || err != nil {
		t.Error(err, diff)
	}
	if names, err := mustPath(t, ".a[*].d").Names(); err == nil || err.Error() != "must not contain [*]" || names != nil {
		t.Error(names, err)
	}
}

func TestPath_Each(t *testing.T) {
	var value any
	if err := json.Unmarshal([]byte(`{"a":[{"b":1},{"b":[2,3]},4,{"c":5},null],"m":{"z":"last","k":"first"},"n":null,"x.y":{"b":"dots"}}`), &value); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string][]any{
		".a[*].b":      {1.0, []any{2.0, 3.0}},
		".a[*].b[*]":   {2.0, 3.0},
		".m[*]":        {"first", "last"},
		".m.z":         {"last"},
		".n":           {nil},
		".n.x":         nil,
		".n[*]":        nil,
		".missing[*]":  nil,
		".a.b":         nil,
		".m.z[*]":      nil,
		"['x.y'].b":    {"dots"},
		"[*][*]['b']":  {1.0, []any{2.0, 3.0}},
		".a[*].c":      {5.0},
		".m.z.further": nil,
	} {
		var got []any
		p := mustPath(t, text)
		p.Each(value, func(v any) bool {
			got = append(got, v)
			return true
		})
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
		calls := 0
		p.Each(value, func(any) bool {
			calls++
			return false
		})
		if calls > 1 {
			t.Errorf("%s: f was called %d times after it had returned false", text, calls-1)
		}
		if first := p.get(value); len(want) > 0 && !cmp.Equal(first, want[0]) || len(want) == 0 && first != nil {
			t.Errorf("%s: get = %v", text, first)
		}
	}
}

// A key belongs to the element of the list that names its Secret.
func TestPath_Within(t *testing.T) {
	var value any
	if err := json.Unmarshal([]byte(`{"d":"default","u":[{"n":"a","l":[{"s":"x","k":1},{"s":"y"}]},{"n":"b","l":[{"s":"z","k":3}]}]}`), &value); err != nil {
		t.Fatal(err)
	}
	path := mustPath(t, ".u[*].l[*].s")
	var got []string
	path.eachWithin([]any{value}, func(within []any, v any) bool {
		got = append(got, fmt.Sprint(v, " ", mustPath(t, ".u[*].l[*].k").getWithin(within), " ", mustPath(t, ".u[*].n").getWithin(within), " ", mustPath(t, ".d").getWithin(within)))
		return true
	})
	if diff := cmp.Diff([]string{"x 1 a default", "y <nil> a default", "z 3 b default"}, got); diff != "" {
		t.Error(diff)
	}
	for text, want := range map[string]bool{
		".d": true, ".u[*].n": true, ".u[*].l[*].k": true, ".u[*].l[*]": true,
		".v[*].n": false, ".u[*].x[*].k": false, ".u[*].l[*].s[*]": false, "[*].l": false,
	} {
		if got := mustPath(t, text).sharesAll(path); got != want {
			t.Errorf("%s shares the [*] of %s: %v", text, path, got)
		}
	}
}

func FuzzParsePath(f *testing.F) {
	for _, seed := range []string{".spec.template", ".a['b.c/d'][*]", "[*][*][*]", ".a..b", "['", "['a']x", ".a['b']']", "\xff"} {
		f.Add(seed, `{"a":{"b":[{"c":1}],"b.c/d":[1,2]}}`)
	}
	f.Fuzz(func(t *testing.T, text, object string) {
		p, err := ParsePath(text)
		if err != nil {
			if !p.IsZero() {
				t.Fatalf("%q: a path came with the error %v", text, err)
			}
			return
		}
		if len(text) > maxPathLength || len(p.segments) > maxPathSegments {
			t.Fatalf("a path of %d bytes and %d segments", len(text), len(p.segments))
		}
		again, err := ParsePath(p.String())
		if err != nil || !slices.Equal(again.segments, p.segments) || again.String() != p.String() {
			t.Fatalf("%q is %s, which is %s, %v", text, p, again, err)
		}
		var value any
		if json.Unmarshal([]byte(object), &value) != nil {
			return
		}
		visited := 0
		p.Each(value, func(any) bool {
			visited++
			return true
		})
		if visited > len(object) { // a value has at least one byte
			t.Fatalf("%s: %d values in %d bytes", p, visited, len(object))
		}
	})
}
