// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/limit"
)

// reloadPolicy decodes a ReloadPolicy of a version and a generation.
func reloadPolicy(t *testing.T, s *stream, name string, version, generation int, suspend bool) *object {
	t.Helper()
	o, err := s.decode(fmt.Appendf(nil, `{"metadata":{"name":%q,"uid":"u-%[1]s","resourceVersion":"%d","generation":%d},"spec":{"suspend":%t}}`, name, version, generation, suspend))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// From when it is known that policies are served until they have been read, and as long as they cannot be read, there may be some. What changes them concerns all
// workloads, but not what changes their status alone.
func TestPolicies(t *testing.T) {
	scope := Scope{Kinds: kind.BuiltIn(), Policies: true}
	s := policies()
	if names := namesOf(scope.streams(nil)); !slices.Contains(names, Policies) {
		t.Fatalf("streams %v", names)
	}
	if names := namesOf((Scope{Policies: true, Namespaces: []string{"a"}}).streams(nil)); !slices.Contains(names, Policies) {
		t.Errorf("of one namespace: %v", names)
	}
	sink := &recorder{}
	x, _ := newTestIndex(sink)
	x.Within(scope)
	if limit.In(x.graph).Unknown() == "" {
		t.Error("it is not known whether they are served, and they count as absent")
	}
	x.leave(s)
	x.awaitPolicies(s, false)
	for _, each := range scope.streams(nil) {
		switch {
		case each.policies():
		case each.kind == "Deployment":
			x.replace(each, []any{deployment("web", 5, "db")}, "100")
		default:
			x.replace(each, nil, "100")
		}
	}
	sink.told()
	want := func(what string, unknown bool, names, told string) {
		t.Helper()
		var got []string
		for _, p := range limit.In(x.graph).All() {
			got = append(got, fmt.Sprint(p.Name, p.ResourceVersion))
		}
		if text := strings.Join(sink.told(), ", "); (limit.In(x.graph).Unknown() != "") != unknown || strings.Join(got, " ") != names || strings.Contains(text, "deployment.web") != (told != "") {
			t.Errorf("%s: unknown %q, policies %v, told %q", what, limit.In(x.graph).Unknown(), got, text)
		}
	}
	want("not served", false, "", "")
	x.awaitPolicies(s, true)
	want("served", true, "", "all")
	x.replace(s, []any{reloadPolicy(t, s, "a", 90, 1, false)}, "101")
	want("listed", false, "a90", "all")
	x.set(s, reloadPolicy(t, s, "a", 102, 1, false))
	want("its status is written", false, "a102", "")
	x.set(s, reloadPolicy(t, s, "a", 103, 2, true))
	want("it is changed", false, "a103", "all")
	x.set(s, reloadPolicy(t, s, "b", 104, 1, false))
	want("another one is created", false, "a103 b104", "all")
	x.remove(s, reloadPolicy(t, s, "a", 105, 2, true))
	want("one is deleted", false, "b104", "all")
	x.replace(s, []any{reloadPolicy(t, s, "b", 104, 1, false)}, "106")
	want("listed again", false, "b104", "")
	x.leave(s)
	x.awaitPolicies(s, true)
	want("the right to read them is gone", true, "", "all")
	x.awaitPolicies(s, false)
	want("their definition is gone", false, "", "all")
}
