// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package decide_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/ingest/ingesttest"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
)

// TestDecide_Globs follows a workload that names sources by globs: matching sources are created, changed and deleted. A trigger is the source itself.
func TestDecide_Globs(t *testing.T) {
	const one, two = "Secret/feature-1", "Secret/feature-2"
	type step struct {
		what string
		do   func(*world)
		want []string
	}
	put := func(name, value string) func(*world) {
		return func(x *world) { x.set(secret(name, "a", value)) }
	}
	remove := func(name string) func(*world) {
		return func(x *world) { x.remove(dependency.Secret, name) }
	}
	away := func(f func(*world)) func(*world) {
		return func(x *world) { x.away(func() { x.tick(time.Minute); f(x); x.tick(time.Minute) }) }
	}
	twoCome := step{"two come", both(put("feature-1", "1"), put("feature-2", "1")), []string{one}}
	for name, steps := range map[string][]step{
		"matching sources are created, changed and deleted": {
			{"the first comes", put("feature-1", "1"), []string{one}},
			{"a second comes", put("feature-2", "1"), []string{two}},
			{"one changes", put("feature-1", "2"), []string{one}},
			{"metadata changes", func(x *world) { x.set(annotated(secret("feature-1", "a", "2"), "a", "b")) }, nil},
			{"one goes", remove("feature-2"), []string{two}},
			{"the last goes", remove("feature-1"), []string{one}},
			{"the first comes again", put("feature-1", "2"), []string{one}},
			{"a source that does not match is created", put("other", "1"), nil},
			{"the server is restarted", (*world).restart, nil},
		},
		"a source is deleted and created again at once": {
			twoCome,
			{"with the same content", both(remove("feature-1"), put("feature-1", "1")), nil},
			{"with other content", both(remove("feature-1"), put("feature-1", "2")), []string{one}},
		},
		"no server runs": {
			{"the first comes", away(put("feature-1", "1")), []string{one}},
			{"a second comes", away(put("feature-2", "1")), []string{two}},
			{"one goes", away(remove("feature-2")), []string{two}},
			{"the last goes", away(remove("feature-1")), []string{one}},
		},
		"the owner restarts the pods after a source was deleted": {
			twoCome,
			{"one goes, another image comes", both(remove("feature-2"), func(x *world) { x.image("app:2"); x.tick(time.Minute); x.rollOut() }), nil},
			{"it comes again", put("feature-2", "1"), []string{two}},
		},
		"an edit of the policy does not count as a change": {
			twoCome,
			{"another glob for the same sources", annotate(policy.SourcesAnnotation, "secret/*-1,secret/feature-*"), nil},
			{"one source is also named", annotate(policy.SourcesAnnotation, "secret/feature-*,secret/*-1,secret/feature-1"), nil},
			{"it is no longer named", annotate(policy.SourcesAnnotation, "secret/feature-*"), nil},
			{"one is excluded", annotate(policy.ExcludeAnnotation, "secret/feature-2"), nil},
			{"the excluded one changes", put("feature-2", "2"), nil},
			{"the excluded one goes", remove("feature-2"), nil},
			{"the other changes", put("feature-1", "2"), []string{one}},
			{"none is excluded", annotate(policy.ExcludeAnnotation, ""), nil},
			{"one goes", remove("feature-1"), []string{one}},
		},
		"a glob replaces a name, and a counted source has changed": {
			{"one is named", both(put("feature-1", "1"), annotate(policy.SourcesAnnotation, "secret/feature-1")), nil},
			{"it changes, and a glob names it", both(put("feature-1", "2"), annotate(policy.SourcesAnnotation, "secret/feature-*")), []string{one}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, podOf())
			x.annotate(policy.ReloadAnnotation, "listed", policy.SourcesAnnotation, "secret/feature-*")
			x.act()
			for _, s := range steps {
				s.do(x)
				if got := x.restarts(); strings.Join(got, ",") != strings.Join(s.want, ",") {
					t.Fatalf("%s: restarts for %q, want %q", s.what, got, s.want)
				}
			}
		})
	}
}

// As many sources as are recorded are tracked by globs. With more, the workload says so, and nothing restarts it.
func TestDecide_GlobsThatMatchTooManySources(t *testing.T) {
	for n, want := range map[int]outcome{dependency.MaxMatched: recording, dependency.MaxMatched + 1: {State: decide.Blocked, Reason: decide.ReasonTooManyPatterns}} {
		sources := []ingesttest.Object{secret("db", "a", "1")}
		for i := range n {
			sources = append(sources, configMap(fmt.Sprint("c-", i), "a", "1"))
		}
		x := newWorld(t, podOf(envFrom(dependency.Secret, "db")), sources...)
		x.annotate(policy.SourcesAnnotation, "configmap/c*")
		d := x.want(fmt.Sprint(n, " ConfigMaps"), want)
		if want.State == decide.Blocked {
			if !strings.Contains(d.Message, "match more than 1000 ConfigMaps and Secrets") {
				t.Errorf("message = %s", d.Message)
			}
			continue
		}
		x.act()
		if n := len(x.deployment.Annotations[record.AppliedSourcesAnnotation]); n > 64<<10 {
			t.Errorf("the record has %d bytes", n)
		}
		x.set(configMap("c-7", "a", "2"))
		x.wantRestarts("one changes", "ConfigMap/c-7")
	}
}

// Also sources that others match as well: each is tracked by its own name, with its own state.
func TestEvaluate_SourcesOfRegularExpressions(t *testing.T) {
	x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1"), secret("a-1", "k", "1"), secret("a-2", "k", "1"), secret("b-1", "k", "1"))
	x.annotate(policy.ReloadAnnotation, "", secretList, "a-.*,b-.*")
	x.adopt()
	ids := func() (ids []string) {
		for id := range x.evaluate().Present().Sources {
			ids = append(ids, id)
		}
		return ids
	}
	if got := ids(); len(got) != 3 {
		t.Errorf("recorded = %v, want three Secrets", got)
	}
	x.set(secret("a-2", "k", "2"))
	x.tick(time.Minute)
	d := x.want("one changes", rollOut("Secret/a-2"))
	if got := x.evaluate().Changed(&d); len(got) != 1 || got[0].Name != "a-2" || got[0].Digest == "" {
		t.Errorf("changed = %+v", got)
	}
	x.remove(dependency.Secret, "b-1")
	x.annotate(secretList, "a-.*")
	if got := ids(); len(got) != 2 {
		t.Errorf("recorded = %v, want the two that are named", got)
	}
}
