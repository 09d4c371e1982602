// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/ingest/ingesttest"
	"github.com/configdep/configdep/pkg/policy"
)

func TestMissing_NamesEachSourceAndKey(t *testing.T) {
	x := newWorld(t, podOf(
		env(dependency.Secret, "db", "user"), env(dependency.Secret, "db", "password"), env(dependency.Secret, "db", "host"),
		envFrom(dependency.ConfigMap, "gone"), optionalEnvFrom(dependency.ConfigMap, "optional"), unmounted(dependency.Secret, "tls"),
	), secret("db", "host", "h"))
	got, absent := x.evaluate().Missing()
	if diff := cmp.Diff([]string{"ConfigMap gone is missing", "Secret db lacks the keys password and user"}, got); diff != "" || !absent {
		t.Errorf("absent = %v, missing (-want +got):\n%s", absent, diff)
	}
	x.set(configMap("gone"))
	x.set(secret("tls"))
	if got, absent := x.evaluate().Missing(); len(got) != 1 || absent {
		t.Errorf("absent = %v, missing = %v", absent, got)
	}
}

// TestStale_IsKnownInEveryMode: a Reload with mode IfStale asks for it, even for workloads that are
// not restarted automatically.
func TestStale_IsKnownInEveryMode(t *testing.T) {
	x := typical(t)
	x.annotate(policy.ReloadAnnotation, "off")
	check := func(what string, want []string, wantKnown bool) {
		t.Helper()
		ids, known := x.evaluate().Stale()
		if diff := cmp.Diff(want, ids); diff != "" || known != wantKnown {
			t.Errorf("%s: known = %v, stale sources (-want +got):\n%s", what, known, diff)
		}
	}
	check("nothing is recorded", nil, false)
	e := x.evaluate()
	x.patch(e.Policy.RestartPatch(e.Workload, &policy.Restart{Present: e.Present(), Last: policy.NewRequestedReload(nil, x.now, "me", ""), Always: true}))
	check("just restarted", nil, true)
	x.set(secret("db", "password", "2"))
	x.set(secret("extra", "a", "1"))
	check("two have changed", []string{"Secret/db", "Secret/extra"}, true)
	x.replaceKey()
	check("the key has been replaced", nil, false)
}

// TestPresent_HoldsOneEntryForEachSource: the record has one entry for each source and each glob, so
// that it stays small, and no entry reveals names of keys or content.
func TestPresent_HoldsOneEntryForEachSource(t *testing.T) {
	x := newWorld(t, podOf(env(dependency.Secret, "db", "password"), envFrom(dependency.ConfigMap, "settings"), optionalEnvFrom(dependency.Secret, "extra")),
		secret("db", "password", "hunter2"), configMap("settings", "a", "1", "b", "1"),
		secret("feature-1", "a", "1"), secret("feature-2", "a", "1", "b", "1"))
	x.annotate(policy.SourcesAnnotation, "secret/feature-*,configmap/none-*")
	r := x.evaluate().Present()
	got := map[string]string{}
	for id, entry := range r.Sources {
		scope, rest, _ := strings.Cut(entry, ".")
		if digest, keys, found := strings.Cut(rest, "."); found && len(digest) == 16 {
			if len(keys)%policy.KeyNameLength == 0 {
				keys = strconv.Itoa(len(keys) / policy.KeyNameLength)
			}
			rest = keys + " keys"
		}
		got[id] = scope + " " + rest
	}
	want := map[string]string{
		"Secret/db": "90a6b2c8 1 keys", "ConfigMap/settings": "* 2 keys", "Secret/extra": "* 0 keys",
		"Secret/feature-*": "glob 3 keys", "ConfigMap/none-*": "glob ",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if text := r.SourcesJSON(); strings.Contains(text, "password") || strings.Contains(text, "hunter2") {
		t.Errorf("the record reveals names of keys or content: %s", text)
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(r.Sources))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestEvaluate_HashDoesNotDependOnThePlaceOfUse: two workloads that read the same content have the
// same hash, whatever their names and containers.
func TestEvaluate_HashDoesNotDependOnThePlaceOfUse(t *testing.T) {
	a := newWorld(t, podOf(env(dependency.Secret, "db", "password"), env(dependency.Secret, "db", "user")), secret("db", "password", "1", "user", "u", "more", "m"))
	b := newWorld(t, podOf(volume(dependency.Secret, "db", "user"), env(dependency.Secret, "db", "password")), secret("db", "password", "1", "user", "u"))
	if a.evaluate().Hash != b.evaluate().Hash {
		t.Error("the hashes of the same content differ")
	}
	b.set(secret("db", "password", "1", "user", "v"))
	if a.evaluate().Hash == b.evaluate().Hash {
		t.Error("the hashes of different content are equal")
	}
}

// TestEvaluate_KeyOfBinaryDataIsNoneOfAnEnvironment: the kubelet creates variables only from data, so
// adding or removing a source with only binaryData restarts nothing.
func TestEvaluate_KeyOfBinaryDataIsNoneOfAnEnvironment(t *testing.T) {
	x := newWorld(t, podOf(envFrom(dependency.ConfigMap, "settings")), configMap("settings", "a", "1"))
	x.adopt()
	with := configMap("settings", "a", "1")
	with.BinaryData = map[string][]byte{"b": {1}}
	x.set(with)
	if d := x.act(); d.State != policy.InSync || d.Action == policy.RollOut {
		t.Errorf("the source is created: decision = %v", outcomeOf(d))
	}
	x.set(configMap("settings", "a", "1"))
	x.tick(time.Minute)
	if d := x.decide(); d.Action == policy.RollOut || d.Stale {
		t.Errorf("the source is deleted: decision = %v", outcomeOf(d))
	}
}

// TestDecide_EditOfTheScopeOfAnotherSourceAdoptsNothing: the edit does not change whether a source
// that the template has just begun to read counts.
func TestDecide_EditOfTheScopeOfAnotherSourceAdoptsNothing(t *testing.T) {
	for name, edit := range map[string]func(*world){
		"another source is named": func(x *world) { x.annotate(policy.SourcesAnnotation, "configmap/other") },
		"the default is spelled":  func(x *world) { x.annotate(policy.KindsAnnotation, "configmap,secret") },
		"by a glob and by name":   func(x *world) { x.annotate(policy.SourcesAnnotation, "secret/s*") },
	} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, podOf(envFrom(dependency.ConfigMap, "settings")), configMap("settings", "a", "1"), secret("sole", "a", "1"), configMap("other", "a", "1"))
			if name == "by a glob and by name" {
				x.annotate(policy.SourcesAnnotation, "secret/sole")
			}
			x.adopt()
			x.tick(time.Minute)
			if name != "by a glob and by name" { // its first record is late
				x.edit(func(d *appsv1.Deployment) {
					d.Spec.Template.Spec = podOf(envFrom(dependency.ConfigMap, "settings"), envFrom(dependency.Secret, "sole"))
				})
			}
			x.set(secret("sole", "a", "2"))
			edit(x)
			x.tick(time.Minute)
			if d := x.decide(); d.Action != policy.RollOut {
				t.Errorf("decision = %+v, want action RollOut", outcomeOf(d))
			}
		})
	}
	t.Run("a glob begins to count a source that was deleted long ago and is not recorded", func(t *testing.T) {
		x := newWorld(t, podOf(envFrom(dependency.ConfigMap, "settings")), configMap("settings", "a", "1"), secret("sole", "a", "1"))
		other := ingesttest.Deployment("other", podOf(envFrom(dependency.Secret, "sole"))) // the deletion is remembered for it
		other.Annotations = nil
		x.Set(other)
		x.adopt()
		x.remove(dependency.Secret, "sole")
		x.tick(time.Minute)
		x.annotate(policy.SourcesAnnotation, "secret/s*")
		if got := outcomeOf(x.act()); got != baseline {
			t.Errorf("got %+v, want %+v", got, baseline)
		}
		x.set(secret("sole", "a", "1"))
		x.tick(time.Minute)
		if got := outcomeOf(x.decide()); got != rollOut("Secret/s*") {
			t.Errorf("then the Secret is created: got %+v, want %+v", got, rollOut("Secret/s*"))
		}
	})
	t.Run("nothing counted, as the workload had opted out", func(t *testing.T) {
		x := newWorld(t, podOf(envFrom(dependency.ConfigMap, "settings")), configMap("settings", "a", "1"), secret("sole", "a", "1"))
		x.annotate(policy.ReloadAnnotation, "off")
		e := x.evaluate()
		x.patch(e.Policy.RestartPatch(e.Workload, &policy.Restart{Present: e.Present(), Last: policy.NewRequestedReload(nil, x.now, "me", "")})) // a Reload
		x.edit(func(d *appsv1.Deployment) { envFrom(dependency.Secret, "sole")(&d.Spec.Template.Spec) })
		x.tick(time.Minute)
		x.set(secret("sole", "a", "2"))
		x.tick(time.Minute)
		x.annotate(policy.ReloadAnnotation, "auto")
		if d := x.decide(); d.Action != policy.WriteBaseline {
			t.Errorf("decision = %+v, want action WriteBaseline", outcomeOf(d))
		}
	})
	t.Run("a source begins to count", func(t *testing.T) {
		x := newWorld(t, podOf(envFrom(dependency.Secret, "sole")), secret("sole", "a", "1"))
		x.annotate(policy.ExcludeAnnotation, "secret/sole")
		x.adopt()
		x.set(secret("sole", "a", "2"))
		x.annotate(policy.ExcludeAnnotation, "secret/none")
		if d := x.act(); d.Action != policy.WriteBaseline {
			t.Errorf("decision = %+v, want action WriteBaseline", outcomeOf(d))
		}
	})
}
