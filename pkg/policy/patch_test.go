// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
)

// annotationsOf returns the annotations in a patch for the workload and its template; "-" stands
// for an annotation that is removed.
func annotationsOf(t *testing.T, patch []byte, err error) (workload, template map[string]string) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	type metadata struct{ Annotations map[string]*string }
	var p struct {
		Metadata metadata
		Spec     struct{ Template struct{ Metadata metadata } }
	}
	if err := json.Unmarshal(patch, &p); err != nil {
		t.Fatal(err)
	}
	read := func(m metadata) map[string]string {
		out := map[string]string{}
		for k, v := range m.Annotations {
			if out[strings.TrimPrefix(k, "configdep.io/")] = "-"; v != nil {
				out[strings.TrimPrefix(k, "configdep.io/")] = *v
			}
		}
		return out
	}
	return read(p.Metadata), read(p.Spec.Template.Metadata)
}

// A new record removes annotations about other pods or about an earlier inspection, and removes only
// annotations that exist.
func TestPatches_RemoveWhatIsOutdated(t *testing.T) {
	present := policy.Record{Hash: "v1.k.h", Sources: map[string]string{"Secret/db": "*.d.1"}}
	record := map[string]string{"config-hash": "v1.k.h", "applied-sources": `{"Secret/db":"*.d.1"}`}
	with := func(pairs ...string) map[string]string {
		out := maps.Clone(record)
		for i := 0; i < len(pairs); i += 2 {
			out[pairs[i]] = pairs[i+1]
		}
		return out
	}
	restart := policy.Restart{Present: present, Last: policy.LastReload{Trigger: "Secret/db"}}
	last := restart.Last.JSON()
	evicted := (&policy.LastReload{Trigger: "Secret/db", Evicted: true}).JSON()
	for name, tt := range map[string]struct {
		before map[string]string
		patch  func(*dependency.Workload) ([]byte, error)
		want   map[string]string
	}{
		"a restart": {nil, func(w *dependency.Workload) ([]byte, error) {
			return (&policy.Policy{Mode: policy.Auto}).RestartPatch(w, &restart)
		},
			with("last-reload", last)},
		"a restart, after an inspection and an eviction": {map[string]string{policy.VerifiedAnnotation: "then", policy.RecreatingAnnotation: "none"},
			func(w *dependency.Workload) ([]byte, error) {
				return (&policy.Policy{Mode: policy.Auto}).RestartPatch(w, &restart)
			},
			with("last-reload", last, "verified-at", "-", "recreating", "-")},
		"an eviction, after an inspection": {map[string]string{policy.VerifiedAnnotation: "then"},
			func(w *dependency.Workload) ([]byte, error) {
				return (&policy.Policy{Mode: policy.Auto, Strategy: policy.Recreate}).RestartPatch(w, &restart)
			},
			with("last-reload", evicted, "verified-at", "-", "recreating", policy.NoPod)},
		"a record":                      {nil, func(w *dependency.Workload) ([]byte, error) { return policy.BaselinePatch(w, present) }, record},
		"a record, after an inspection": {map[string]string{policy.VerifiedAnnotation: "then"}, func(w *dependency.Workload) ([]byte, error) { return policy.BaselinePatch(w, present) }, with("verified-at", "-")},
		"a record, while pods are evicted": {map[string]string{policy.RecreatingAnnotation: "a,b"}, func(w *dependency.Workload) ([]byte, error) { return policy.BaselinePatch(w, present) },
			record},
		"an inspection": {map[string]string{policy.VerifiedAnnotation: "then"}, func(w *dependency.Workload) ([]byte, error) { return policy.VerifiedPatch(w, present, epoch) },
			with("verified-at", "2026-03-01T12:00:00Z 7")},
		"an eviction ends": {map[string]string{policy.RecreatingAnnotation: "a"}, policy.EndPatch, map[string]string{"recreating": "-"}},
		"an eviction is abandoned": {map[string]string{policy.RecreatingAnnotation: "a", policy.ConfigHashAnnotation: "v1.k.1", policy.AppliedSourcesAnnotation: `{"Secret/db":"2b.12.1"}`},
			func(w *dependency.Workload) ([]byte, error) { return policy.AbandonedPatch(w, present) },
			map[string]string{"recreating": "-", "config-hash": "v1.k.abandoned", "applied-sources": "-"}},
		"an eviction is abandoned, after an inspection": {map[string]string{policy.RecreatingAnnotation: "a", policy.VerifiedAnnotation: "then"},
			func(w *dependency.Workload) ([]byte, error) { return policy.AbandonedPatch(w, present) },
			map[string]string{"recreating": "-", "config-hash": "v1.k.abandoned", "verified-at": "-"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := policy.AnnotatedWorkload(tt.before, nil)
			w.ResourceVersion = "7"
			patch, err := tt.patch(w)
			got, _ := annotationsOf(t, patch, err)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// An owner that removes the record during an eviction also removes the list of pods to evict: both
// are written again.
func TestBaselinePatch_AfterTheRecordWasRemoved(t *testing.T) {
	for _, recreating := range []string{"", "a,b"} {
		x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1"))
		x.adopt()
		x.annotate(policy.StrategyAnnotation, "recreate", policy.RecreatingAnnotation, recreating)
		x.annotate(policy.ConfigHashAnnotation, "", policy.AppliedSourcesAnnotation, "", policy.RecreatingAnnotation, "")
		e := x.evaluate()
		patch, err := policy.BaselinePatch(e.Workload, e.Present())
		got, _ := annotationsOf(t, patch, err)
		if got["recreating"] != recreating || got["config-hash"] != e.Hash {
			t.Errorf("with the list %q, the patch sets %v", recreating, got)
		}
	}
}

// Two requests at the same time cause two restarts.
func TestRestartPatch_AlwaysDiffers(t *testing.T) {
	w := &dependency.Workload{}
	for _, want := range []string{"2026-03-01T12:00:00.5Z", "2026-03-01T12:00:00.500000001Z"} {
		patch, err := (&policy.Policy{}).RestartPatch(w, &policy.Restart{Last: policy.NewRequestedReload(nil, epoch.Add(time.Second/2), "me", ""), Always: true})
		_, template := annotationsOf(t, patch, err)
		if diff := cmp.Diff(want, template["reloaded-at"]); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		w.Marks.ReloadedAt = template["reloaded-at"]
	}
}

// Records of one version are compared with what the next version computes: a different format
// would restart every workload after an upgrade.
func TestRecord_KeepsItsFormat(t *testing.T) {
	x := newWorld(t, podOf(env(dependency.Secret, "db", "password"), envFrom(dependency.ConfigMap, "settings"), optionalEnvFrom(dependency.Secret, "extra")),
		secret("db", "password", "1"), configMap("settings", "a", "1", "b", "1"), secret("feature-1", "a", "1"), secret("feature-2", "a", "1"))
	x.annotate(policy.SourcesAnnotation, "secret/feature-*,configmap/none-*", policy.ExcludeAnnotation, "secret/feature-2,secret/a,configmap/b")
	e := x.evaluate()
	want := policy.Record{Hash: "v1.989cd9c9.9577be247a7585041dcb560e9228b812", Sources: map[string]string{
		"ConfigMap/none-*":   "glob-9d2c3f7f.",
		"ConfigMap/settings": "*.778e8897ca9f303f.ea08454ae51a",
		"Secret/db":          "90a6b2c8.22c2e105bd46c1ae.a958cb",
		"Secret/extra":       "*.78d6ba4c729bb829.0",
		"Secret/feature-*":   "glob-09ebe3a7.fe503fbad1a7b45f.1",
	}}
	if diff := cmp.Diff(want, e.Present()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	patch, err := e.MixedPatch([]string{"Secret/db"})
	got, _ := annotationsOf(t, patch, err)
	want.Sources["Secret/db"] = "90a6b2c8.mixed."
	if diff := cmp.Diff(map[string]string{"config-hash": "v1.989cd9c9.mixed", "applied-sources": want.SourcesJSON()}, got); diff != "" {
		t.Errorf("record of mixed pods (-want +got):\n%s", diff)
	}
}

// If the same record is written again, it must differ: an unchanged record keeps its age.
func TestMixedPatch_WritesAnotherRecord(t *testing.T) {
	x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1"))
	x.adopt()
	for range 3 {
		before := x.workload().RecordedAt
		x.patch(x.evaluate().MixedPatch([]string{"Secret/db"}))
		if after := x.workload().RecordedAt; after == before {
			t.Errorf("after the patch, the record still has the age %v", before)
		}
	}
}
