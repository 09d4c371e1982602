// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package decide_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
	"github.com/configdep/configdep/test/seeds"
)

// Policies for both strategies.
var byRollout, byEviction = &policy.Policy{Mode: policy.Auto, Strategy: record.Annotate}, &policy.Policy{Mode: policy.Auto, Strategy: record.Recreate}

var update = flag.Bool("update", false, "write the golden files again")

func micro(t time.Time) *metav1.MicroTime {
	m := metav1.NewMicroTime(t)
	return &m
}

// TestPatches compares the patches for the API server, except for whitespace.
func TestPatches(t *testing.T) {
	w := &dependency.Workload{
		WorkloadKey: dependency.WorkloadKey{Kind: kind.Deployment, Namespace: namespace, Name: "web"},
		UID:         "1b4e28ba", ResourceVersion: "42",
	}
	present := record.Record{
		Hash: "v1.6f1c.00112233445566778899aabbccddeeff",
		At:   epoch, Scope: "00112233aabbccdd",
		Sources: map[string]record.Entry{"Secret/db": {Content: "90a6b2c8.0123456789abcdef"}, "ConfigMap/new": {Content: "*.0123456789abcdef", Adopted: epoch}},
	}
	recorded := &dependency.Workload{UID: w.UID, ResourceVersion: w.ResourceVersion, Marks: dependency.Marks{Hash: present.Hash, Sources: "{}", Recreating: "none"}}
	now := epoch.Add(1234567 * time.Microsecond).In(time.FixedZone("", 3600))
	automatic := record.NewAutomaticReload(nil, now, time.Minute, "Secret/db")
	requested := record.NewRequestedReload(&automatic, now.Add(time.Minute), "jane <jane@example.com>", `rotated "by hand" & more`)
	for name, patch := range map[string]func() ([]byte, error){
		"rollout": func() ([]byte, error) {
			return byRollout.RestartPatch(w, &record.Restart{Present: present, Last: automatic})
		},
		"rolloutAlways": func() ([]byte, error) {
			return byRollout.RestartPatch(w, &record.Restart{Present: present, Last: requested, Always: true})
		},
		"record": func() ([]byte, error) { return record.Patch(w, present) },
		"recreate": func() ([]byte, error) {
			return byEviction.RestartPatch(w, &record.Restart{Present: present, Last: automatic, Pods: []types.UID{"pod-2", "pod-1"}})
		},
		"recreated": func() ([]byte, error) { return record.EndPatch(w) },
		"forgotten": func() ([]byte, error) { return record.ForgetPatch(recorded) },
	} {
		t.Run(name, func(t *testing.T) {
			data, err := patch()
			if err != nil {
				t.Fatal(err)
			}
			var got bytes.Buffer
			if err := json.Indent(&got, data, "", "  "); err != nil {
				t.Fatal(err)
			}
			got.WriteByte('\n')
			file := filepath.Join("testdata", "patch-"+name+".json")
			if *update {
				if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got.String()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestPatches_NameOurAnnotationsAlone: patches contain only configdep's annotations, whatever is in
// the record, and are bound to one version of one object.
func TestPatches_NameOurAnnotationsAlone(t *testing.T) {
	seeds.Each(t, 1, patchesNameOurAnnotationsAlone)
}

func patchesNameOurAnnotationsAlone(t *testing.T, seed uint64) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 2))
	text := func() string {
		b := make([]rune, r.IntN(12))
		for i := range b {
			b[i] = []rune(`aZ0/.-*"\{}:,'<&é` + "\n\x00")[r.IntN(19)]
		}
		return string(b)
	}
	onWorkload := []string{record.ConfigHashAnnotation, record.AppliedSourcesAnnotation, record.LastReloadAnnotation, record.RecreatingAnnotation}
	onTemplate := []string{record.ConfigHashAnnotation, record.ReloadedAtAnnotation}
	for range 500 {
		w := &dependency.Workload{UID: "uid-1", ResourceVersion: "7"}
		entry := func() record.Entry {
			e := record.Entry{Content: strings.ReplaceAll(text(), "@", "")}
			if r.IntN(2) == 0 {
				e.Adopted = epoch.Add(time.Duration(r.IntN(1000)) * time.Second)
			}
			return e
		}
		present := record.Record{Hash: text(), At: epoch, For: text(), Scope: text(), Sources: map[string]record.Entry{text(): entry(), text(): entry()}}
		now := epoch.Add(time.Duration(r.Int64N(int64(1000 * time.Hour))))
		last := record.NewAutomaticReload(&record.LastReload{Automatic: micro(now.Add(-time.Duration(r.Int64N(int64(time.Minute))))), Streak: r.IntN(5)}, now, time.Minute, text())
		if r.IntN(2) == 0 {
			last = record.NewRequestedReload(&last, now, text(), text())
		}
		for kind, patch := range map[string]func() ([]byte, error){
			"rollout": func() ([]byte, error) {
				return byRollout.RestartPatch(w, &record.Restart{Present: present, Last: last, Always: r.IntN(2) == 0})
			},
			"record": func() ([]byte, error) { return record.Patch(w, present) },
			"recreate": func() ([]byte, error) {
				return byEviction.RestartPatch(w, &record.Restart{Present: present, Last: last, Always: r.IntN(2) == 0})
			},
			"recreated": func() ([]byte, error) { return record.EndPatch(w) },
		} {
			data, err := patch()
			if err != nil {
				t.Fatal(err)
			}
			var got map[string]any
			if err := json.Unmarshal(data, &got); err != nil {
				t.Fatalf("%s: %v", data, err)
			}
			metadata := take(t, got, "metadata")
			if metadata["uid"] != "uid-1" || metadata["resourceVersion"] != "7" {
				t.Fatalf("metadata of the patch lacks the UID or the resourceVersion: %s", data)
			}
			delete(metadata, "uid")
			delete(metadata, "resourceVersion")
			annotations := take(t, metadata, "annotations")
			for key := range annotations {
				if !slices.Contains(onWorkload, key) {
					t.Errorf("%s sets %s: %s", kind, key, data)
				}
			}
			if kind == "rollout" {
				spec := take(t, got, "spec")
				template := take(t, spec, "template")
				inner := take(t, template, "metadata")
				for key := range take(t, inner, "annotations") {
					if !slices.Contains(onTemplate, key) {
						t.Errorf("%s sets %s on the template: %s", kind, key, data)
					}
				}
				for _, m := range []map[string]any{spec, template, inner} {
					if len(m) > 0 {
						t.Errorf("%s has more: %s", kind, data)
					}
				}
			}
			if len(got) > 0 || len(metadata) > 0 {
				t.Errorf("%s has more: %s", kind, data)
			}
			if kind == "recreated" {
				continue
			}
			// The record is read as it was written: that of a restart, at the time of that, and with what it is about.
			written := map[string]string{}
			for key, value := range annotations {
				written[key], _ = value.(string)
			}
			read, want := marked(written), present
			if kind != "record" {
				want.At = last.Time.UTC()
			}
			if kind == "rollout" {
				want.For = present.Hash
			}
			if kind == "recreate" {
				want.Sources = map[string]record.Entry{}
				for id, e := range present.Sources {
					want.Sources[id] = record.Entry{Content: e.Content, Adopted: last.Time.Truncate(time.Second)}
				}
			}
			if diff := cmp.Diff(want, record.Of(read)); diff != "" {
				t.Errorf("%s (-written +read):\n%s", kind, diff)
			}
			if kind == "record" {
				continue
			}
			// With microseconds, like every time of this type.
			reload := rounded(last)
			reload.Evicted = kind == "recreate"
			if diff := cmp.Diff(reload, *record.LastReloadOf(read)); diff != "" {
				t.Errorf("%s (-written +read):\n%s", kind, diff)
			}
		}
	}
}

func rounded(l record.LastReload) record.LastReload {
	l.Time = metav1.NewMicroTime(l.Time.Truncate(time.Microsecond))
	if l.Automatic != nil {
		l.Automatic = micro(l.Automatic.Truncate(time.Microsecond))
	}
	return l
}

// take removes a field that is an object and returns it.
func take(t *testing.T, from map[string]any, field string) map[string]any {
	t.Helper()
	out, ok := from[field].(map[string]any)
	if !ok {
		t.Fatalf("%s = %v, want an object", field, from[field])
	}
	delete(from, field)
	return out
}

// A record has one entry for each source that counts, also of those that only a glob names, and reveals no names of keys and no content. Records of one
// version are compared with what the next one computes: another format would make every workload adopt again after an upgrade.
func TestPresent_KeepsItsFormat(t *testing.T) {
	x := newWorld(t, podOf(env(dependency.Secret, "db", "password"), envFrom(dependency.ConfigMap, "settings"), optionalEnvFrom(dependency.Secret, "extra")),
		secret("db", "password", "hunter2"), configMap("settings", "a", "1", "b", "1"), secret("feature-1", "a", "1"), secret("feature-2", "a", "1"))
	x.annotate(policy.SourcesAnnotation, "secret/feature-*,configmap/none-*", policy.ExcludeAnnotation, "secret/feature-2,secret/a,configmap/b")
	x.act()
	want := `{"at":"2026-03-01T12:00:00Z","scope":"4c737465424fd59b","sources":{"ConfigMap/settings":"*.778e8897ca9f303f","Secret/db":"90a6b2c8.a02ee99fedfd4336","Secret/extra":"*.78d6ba4c729bb829","Secret/feature-1":"*.5154a9474a5e8488"}}`
	if got := x.deployment.Annotations[record.AppliedSourcesAnnotation]; got != want {
		t.Errorf("record = %s\nwant %s", got, want)
	}
	if got, want := x.deployment.Annotations[record.ConfigHashAnnotation], "v1.989cd9c9.135fca725edf6532872aa25c3df3032e"; got != want {
		t.Errorf("hash = %s, want %s", got, want)
	}
}

// Patches of annotations remove only what exists, and the one that ends an eviction writes a removed record again.
func TestPatches_RemoveWhatIsOutdated(t *testing.T) {
	present := record.Record{Hash: "v1.k.h", At: epoch, Sources: map[string]record.Entry{"Secret/db": {Content: "*.d"}}}
	const at = `{"at":"2026-03-01T12:00:00Z","sources":{"Secret/db":"*.d"}}`
	for name, tt := range map[string]struct {
		before map[string]string
		patch  func(*dependency.Workload) ([]byte, error)
		want   map[string]string
	}{
		"a record": {nil, func(w *dependency.Workload) ([]byte, error) { return record.Patch(w, present) }, map[string]string{"config-hash": "v1.k.h", "applied-sources": at}},
		"a record, while pods are evicted": {
			map[string]string{record.RecreatingAnnotation: "a,b"}, func(w *dependency.Workload) ([]byte, error) { return record.Patch(w, present) },
			map[string]string{"config-hash": "v1.k.h", "applied-sources": at},
		},
		"an eviction ends":  {map[string]string{record.RecreatingAnnotation: "a"}, record.EndPatch, map[string]string{"recreating": "-"}},
		"nothing to forget": {nil, record.ForgetPatch, map[string]string{}},
		"only a hash":       {map[string]string{record.ConfigHashAnnotation: "h"}, record.ForgetPatch, map[string]string{"config-hash": "-"}},
		"opted out while pods are evicted": {
			map[string]string{record.ConfigHashAnnotation: "h", record.AppliedSourcesAnnotation: at, record.RecreatingAnnotation: "a", record.LastReloadAnnotation: "{}", record.ApprovedAnnotation: "{}"}, record.ForgetPatch,
			map[string]string{"config-hash": "-", "applied-sources": "-", "recreating": "-", "approved": "-"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			patch, err := tt.patch(marked(tt.before))
			got, _ := annotationsOf(t, patch, err)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	x := oneSecret(t)
	x.adopt()
	w := x.workload()
	x.annotate(record.ConfigHashAnnotation, "", record.AppliedSourcesAnnotation, "")
	patch, err := record.EndPatch(x.workload())
	got, _ := annotationsOf(t, patch, err)
	if diff := cmp.Diff(map[string]string{"recreating": "-", "config-hash": w.Marks.Hash, "applied-sources": w.Marks.Sources}, got); diff != "" {
		t.Errorf("the end of an eviction, the record is gone (-want +got):\n%s", diff)
	}
}

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

// Two requests at the same time cause two restarts.
func TestRestartPatch_AlwaysDiffers(t *testing.T) {
	w := &dependency.Workload{}
	for _, want := range []string{"2026-03-01T12:00:00.5Z", "2026-03-01T12:00:00.500000001Z"} {
		patch, err := (&policy.Policy{}).RestartPatch(w, &record.Restart{Last: record.NewRequestedReload(nil, epoch.Add(time.Second/2), "me", ""), Always: true})
		_, template := annotationsOf(t, patch, err)
		if diff := cmp.Diff(want, template["reloaded-at"]); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		w.Marks.ReloadedAt = template["reloaded-at"]
	}
}

// apply applies a JSON merge patch.
func apply[T any](t *testing.T, o *T, data []byte) {
	t.Helper()
	before, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	after, err := jsonpatch.MergePatch(before, data)
	if err != nil {
		t.Fatal(err)
	}
	*o = *new(T)
	if err := json.Unmarshal(after, o); err != nil {
		t.Fatal(err)
	}
}
