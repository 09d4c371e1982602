// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package decide_test

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
)

// typical is a Deployment that reads one key of a Secret, all of a ConfigMap, and an
// optional Secret that is absent.
func typical(t *testing.T) *world {
	t.Helper()
	return newWorld(t, podOf(
		env(dependency.Secret, "db", "password"),
		envFrom(dependency.ConfigMap, "settings"),
		optionalEnvFrom(dependency.Secret, "extra"),
	), secret("db", "password", "1", "unread", "1"), configMap("settings", "a", "1", "b", "1"), secret("other", "a", "1"))
}

// TestDecide_WhatIsAChange starts with a workload whose record is up to date, and expects each event to restart it so often, and to leave it in sync. The
// record must then show later changes.
func TestDecide_WhatIsAChange(t *testing.T) {
	const settings, extra = "ConfigMap/settings", "Secret/extra"
	ignored := []string{policy.IgnoreAnnotation, "true"}
	put := func(pairs ...string) func(*world) { return func(x *world) { x.set(configMap("settings", pairs...)) } }
	minute := func(x *world) { x.tick(time.Minute) }
	later := func(x *world) { x.tick(time.Minute) }
	away := func(f func(*world)) func(*world) {
		return func(x *world) { x.away(func() { minute(x); f(x); minute(x) }) }
	}
	ownRollout := func(x *world) { x.image("app:2"); minute(x); x.rollOut() }
	use := func(p part) func(*world) {
		return func(x *world) {
			x.edit(func(d *appsv1.Deployment) { p(&d.Spec.Template.Spec) })
			minute(x)
			x.rollOut()
		}
	}
	for name, tt := range map[string]struct {
		before []string // annotations when the workload was adopted
		do     func(*world)
		want   []string
	}{
		"content of a key that is read":                   {do: password("2"), want: []string{db}},
		"content of a key that is not read":               {do: func(x *world) { x.set(secret("db", "password", "1", "unread", "2")) }},
		"a key that is not read is added":                 {do: func(x *world) { x.set(secret("db", "password", "1", "unread", "1", "more", "1")) }},
		"a key is added, and all are read":                {do: put("a", "1", "b", "1", "c", "1"), want: []string{settings}},
		"a key is removed, and all are read":              {do: put("a", "1"), want: []string{settings}},
		"metadata of a source":                            {do: func(x *world) { x.set(annotated(configMap("settings", "a", "1", "b", "1"), "example.com/by", "me")) }},
		"two sources":                                     {do: both(password("2"), put("a", "2")), want: []string{settings}},
		"a source that is not used":                       {do: func(x *world) { x.set(secret("other", "a", "2")) }},
		"an optional source is created":                   {do: func(x *world) { x.set(secret("extra", "a", "1")) }, want: []string{extra}},
		"an optional source, without content":             {do: func(x *world) { x.set(secret("extra")) }},
		"deleted and created again with the same content": {do: both(func(x *world) { x.remove(dependency.ConfigMap, "settings") }, minute, put("a", "1", "b", "1"))},
		"deleted and created again with other content":    {do: both(func(x *world) { x.remove(dependency.ConfigMap, "settings") }, minute, put("a", "2", "b", "1")), want: []string{settings}},

		"there and back": {do: both(put("a", "2", "b", "1"), minute, put("a", "1", "b", "1"))},
		"there and back, a container reads the other":      {do: both(put("a", "2", "b", "1"), minute, (*world).crash, later, put("a", "1", "b", "1")), want: []string{settings}},
		"there and back, a container starts before":        {do: both((*world).crash, minute, put("a", "2", "b", "1"), later, put("a", "1", "b", "1"))},
		"there and back, a container starts after":         {do: both(put("a", "2", "b", "1"), minute, put("a", "1", "b", "1"), later, (*world).crash)},
		"a key is removed and added again":                 {do: both(put("a", "1"), minute, put("a", "1", "b", "1"))},
		"an optional source is created and deleted":        {do: both(func(x *world) { x.set(secret("extra", "a", "1")) }, minute, func(x *world) { x.remove(dependency.Secret, "extra") })},
		"content changes, and all containers read it":      {do: both(password("2"), minute, (*world).crash)},
		"content changes, and then a container reads that": {do: both(password("2"), func(x *world) { x.scale(2); minute(x); x.crash() }), want: []string{db}},

		"while no server runs: content":                     {do: away(password("2")), want: []string{db}},
		"while no server runs: a key is removed":            {do: away(put("a", "1")), want: []string{settings}},
		"while no server runs: an optional source":          {do: away(func(x *world) { x.set(secret("extra", "a", "1")) }), want: []string{extra}},
		"while no server runs: metadata":                    {do: away(func(x *world) { x.set(annotated(configMap("settings", "a", "1", "b", "1"), "a", "b")) })},
		"while no server runs: content, and the owner":      {do: away(both(password("2"), minute, ownRollout))},
		"while no server runs: the owner, and then content": {do: away(both(ownRollout, minute, password("2"))), want: []string{db}},
		"the server restarts":                               {do: (*world).restart},
		"the server restarts after a change":                {do: both(password("2"), minute, (*world).restart), want: []string{db}},
		"the server restarts after there and back, with a crash in between": {
			do: both(put("a", "2", "b", "1"), minute, (*world).crash, func(x *world) { x.act() }, later, put("a", "1", "b", "1"), (*world).act0), want: []string{settings},
		},

		"the policy: a source is excluded":            {do: annotate(policy.ExcludeAnnotation, "secret/db")},
		"the policy: a source is no longer excluded":  {before: []string{policy.ExcludeAnnotation, "secret/db"}, do: annotate(policy.ExcludeAnnotation, "")},
		"the policy: a source that exists is named":   {do: annotate(policy.SourcesAnnotation, "secret/other")},
		"the policy: a source is no longer named":     {before: []string{policy.SourcesAnnotation, "secret/other"}, do: annotate(policy.SourcesAnnotation, "")},
		"the policy: a glob is added":                 {do: annotate(policy.SourcesAnnotation, "secret/d*")},
		"the policy: another mode":                    {do: annotate(policy.ReloadAnnotation, "matched")},
		"the policy: kinds":                           {do: annotate(policy.KindsAnnotation, "secret")},
		"the policy: all kinds":                       {before: []string{policy.KindsAnnotation, "secret"}, do: annotate(policy.KindsAnnotation, "")},
		"the policy: settle, interval, strategy":      {do: annotate(policy.SettleAnnotation, "5s", policy.MinIntervalAnnotation, "1m", policy.StrategyAnnotation, "env-var")},
		"the policy: made invalid and fixed":          {do: both(annotate(policy.ExcludeAnnotation, "db"), annotate(policy.ExcludeAnnotation, ""))},
		"the policy: made invalid, changed and fixed": {do: both(annotate(policy.ExcludeAnnotation, "db"), password("2"), annotate(policy.ExcludeAnnotation, "")), want: []string{db}},
		"the policy: of the namespace": {
			before: []string{policy.ReloadAnnotation, "listed"},
			do: func(x *world) {
				x.namespaceAnnotations(map[string]string{policy.ReloadAnnotation: "auto"})
				x.annotate(policy.ReloadAnnotation, "")
			},
		},
		"one source changes while another is excluded":  {do: both(password("2"), annotate(policy.ExcludeAnnotation, "configmap/settings")), want: []string{db}},
		"a source changes while another one is named":   {do: both(password("2"), annotate(policy.SourcesAnnotation, "configmap/other")), want: []string{db}},
		"a source is ignored from now on":               {do: func(x *world) { x.set(annotated(configMap("settings", "a", "1", "b", "1"), ignored...)) }},
		"a source is ignored, and changes":              {do: func(x *world) { x.set(annotated(configMap("settings", "a", "2"), ignored...)) }},
		"a source changed while excluded, counts again": {before: []string{policy.ExcludeAnnotation, "secret/db"}, do: both(password("2"), minute, annotate(policy.ExcludeAnnotation, ""), (*world).act0, later, (*world).crash)},
		"a source counts again, and then changes":       {before: []string{policy.ExcludeAnnotation, "secret/db"}, do: both(annotate(policy.ExcludeAnnotation, ""), (*world).act0, password("2")), want: []string{db}},
		"live-volumes is toggled":                       {do: both(annotate(policy.LiveVolumesAnnotation, "true"), (*world).act0, annotate(policy.LiveVolumesAnnotation, ""))},
		"the template begins to use a source":           {do: use(envFrom(dependency.Secret, "other"))},
		"the template begins to use an absent source":   {do: use(optionalEnvFrom(dependency.Secret, "more"))},
		"the template begins to use one, which changes": {do: both(use(envFrom(dependency.Secret, "other")), minute, func(x *world) { x.set(secret("other", "a", "2")) }), want: []string{"Secret/other"}},
		"the template reads another key":                {do: use(env(dependency.Secret, "db", "unread"))},
		"the template stops using a source": {do: func(x *world) {
			x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].EnvFrom = nil })
			minute(x)
			x.rollOut()
		}},
		"the image":                                      {do: ownRollout},
		"content, and then the image":                    {do: both(password("2"), ownRollout)},
		"the image, and then content":                    {do: both(ownRollout, minute, password("2")), want: []string{db}},
		"content, the image, and other content":          {do: both(password("2"), ownRollout, minute, put("a", "2")), want: []string{settings}},
		"content, the image, and the content comes back": {do: both(password("2"), ownRollout, minute, password("1")), want: []string{db}},
		"labels":        {do: func(x *world) { x.edit(func(d *appsv1.Deployment) { d.Labels = map[string]string{"a": "b"} }) }},
		"a crash":       {do: (*world).crash},
		"more replicas": {do: func(x *world) { x.scale(5) }},
	} {
		t.Run(name, func(t *testing.T) {
			x := typical(t)
			x.annotate(tt.before...)
			x.adopt()
			tt.do(x)
			x.wantRestarts("the event", tt.want...)
			for _, s := range x.evaluate().Sources {
				if decide.IDOf(s.Kind, s.Name) == db && s.Triggers {
					x.set(secret("db", "password", "3", "unread", "1"))
					x.wantRestarts("a change after it", db)
				}
			}
		})
	}
}

// act0 is act without a result.
func (x *world) act0() { x.act() }

// A source that counted for nothing while it changed is shown as stale, restarts nothing when an edit of the policy makes it count again, and does when it
// changes then.
func TestDecide_SourceCountsAgain(t *testing.T) {
	inherit := func(value string) func(*world) {
		return func(x *world) { x.namespaceAnnotations(map[string]string{policy.ExcludeAnnotation: value}) }
	}
	for name, tt := range map[string]struct{ out, back func(*world) }{
		"excluded":                   {annotate(policy.ExcludeAnnotation, "secret/db"), annotate(policy.ExcludeAnnotation, "")},
		"excluded by the namespace":  {inherit("secret/db"), inherit("secret/other")},
		"of a kind that counts none": {annotate(policy.KindsAnnotation, "configmap"), annotate(policy.KindsAnnotation, "")},
		"not listed":                 {annotate(policy.ReloadAnnotation, "listed"), annotate(policy.SourcesAnnotation, "secret/db")},
	} {
		t.Run(name, func(t *testing.T) {
			x := typical(t)
			x.adopt()
			for _, step := range []func(*world){tt.out, password("2"), tt.back} {
				step(x)
				if got := x.restarts(); len(got) > 0 {
					t.Fatalf("a source that does not count: restarts for %q", got)
				}
			}
			d := x.want("it counts again", stale(decide.ReasonOptedInStale, decide.None))
			if want := ". It was old already when the workload opted in, or when the source began to count, which restarts nothing. Create a Reload"; !strings.Contains(d.Message, want) {
				t.Errorf("message = %q, want %q", d.Message, want)
			}
			password("3")(x)
			x.wantRestarts("it changes again", db)
		})
	}
}

// A source that its own annotation makes count again restarts stale pods: nothing remembers that it did not count when it changed.
func TestDecide_MarksOfSources(t *testing.T) {
	put := func(value string, marks ...string) func(*world) {
		return func(x *world) { x.set(annotated(secret("db", "password", value), marks...)) }
	}
	for name, tt := range map[string]struct {
		mode    string
		in, out []string // marks with which it counts, and does not
	}{
		"ignored": {"auto", nil, []string{policy.IgnoreAnnotation, "true"}},
		"matched": {"matched", []string{policy.MatchAnnotation, "true"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			x := oneSecret(t)
			put("1", tt.in...)(x)
			x.annotate(policy.ReloadAnnotation, tt.mode)
			x.adopt()
			put("1", tt.out...)(x)
			x.wantRestarts("it does not count")
			put("1", tt.in...)(x)
			x.wantRestarts("it counts again")
			put("1", tt.out...)(x)
			x.act()
			put("2", tt.out...)(x)
			if got := x.restarts(); len(got) > 0 {
				t.Errorf("it changes: restarts for %q", got)
			}
			put("2", tt.in...)(x)
			x.wantRestarts("it counts, and pods have not read it", db)
		})
	}
}

// For users of Reloader, the deletion of a source is no change. Its content was not old when the workload opted in.
func TestDecide_StaleByASourceThatWasDeleted(t *testing.T) {
	x := newWorld(t, podOf(optionalEnv(dependency.Secret, "db", "password")), secret("db", "password", "1"))
	x.annotate(policy.ReloadAnnotation, "", reloaderAuto, "true")
	x.adopt()
	x.remove(dependency.Secret, "db")
	x.tick(time.Minute)
	if d := x.want("deleted", stale(decide.ReasonNotTriggering, decide.None)); !strings.Contains(d.Message, "It was deleted, which does not restart the workload. Create a Reload") {
		t.Error(d.Message)
	}
}

// A source that does not restart the workload is content of its pods nevertheless.
func TestDecide_StaleBySourcesThatDoNotTrigger(t *testing.T) {
	x := typical(t)
	x.annotate(policy.ReloadAnnotation, "listed", policy.SourcesAnnotation, "configmap/settings")
	x.adopt()
	password("2")(x)
	if got := x.restarts(); len(got) > 0 {
		t.Errorf("restarts for %q", got)
	}
	x.want("a source that is not listed", stale(decide.ReasonNotTriggering, decide.None))
}

// A container that started within the margin of the clocks around a change may have read either: it is restarted to be sure, once.
func TestDecide_DoubtRestartsOnce(t *testing.T) {
	x := oneSecret(t)
	x.adopt()
	x.crash()
	x.tick(2 * time.Second)
	password("2")(x)
	x.wantRestarts("a change right after a start", db)
}

// A container reads mounted files again by itself, but it is not known whether the application does, unless the owner says so.
func TestDecide_MountedFiles(t *testing.T) {
	mounted := func(t *testing.T) *world {
		t.Helper()
		return newWorld(t, podOf(volume(dependency.ConfigMap, "files", "")), configMap("files", "a", "1"))
	}
	change := func(x *world) { x.set(configMap("files", "a", "2")) }
	t.Run("not opted in", func(t *testing.T) {
		x := mounted(t)
		optOut(x)
		change(x)
		x.tick(time.Hour)
		if d := x.want("changed", outcome{State: decide.Unknown, Reason: "FilesChanged"}); d.Stale {
			t.Error("it counts as stale")
		}
	})
	t.Run("opted in", func(t *testing.T) {
		x := mounted(t)
		x.adopt()
		change(x)
		x.wantRestarts("changed", "ConfigMap/files")
	})
	t.Run("opted in after the change", func(t *testing.T) {
		x := mounted(t)
		optOut(x)
		change(x)
		x.tick(time.Hour)
		optIn(x)
		if got := x.restarts(); len(got) > 0 {
			t.Errorf("restarts for %q", got)
		}
		x.want("opted in", stale(decide.ReasonOptedInStale, decide.None))
	})
	t.Run("live-volumes", func(t *testing.T) {
		x := mounted(t)
		x.annotate(policy.LiveVolumesAnnotation, "true")
		x.act()
		change(x)
		x.wantRestarts("changed")
		x.annotate(policy.LiveVolumesAnnotation, "")
		x.restarts()
		x.want("no longer live", stale(decide.ReasonOptedInStale, decide.None))
	})
	t.Run("a variable and a live volume of one source", func(t *testing.T) {
		x := newWorld(t, podOf(env(dependency.Secret, "s", "a"), volume(dependency.Secret, "s", "")), secret("s", "a", "1", "b", "1"))
		x.adopt()
		for _, value := range []string{"true", "false", "true"} {
			x.annotate(policy.LiveVolumesAnnotation, value)
			x.wantRestarts("live-volumes=" + value)
		}
	})
}
