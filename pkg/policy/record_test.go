// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/test/seeds"
)

// Policies for both strategies.
var byRollout, byEviction = &policy.Policy{Mode: policy.Auto, Strategy: policy.Annotate}, &policy.Policy{Mode: policy.Auto, Strategy: policy.Recreate}

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
	present := policy.Record{
		Hash: "v1.6f1c.00112233445566778899aabbccddeeff",
		At:   epoch, Scope: "00112233aabbccdd",
		Sources: map[string]policy.Entry{"Secret/db": {Content: "90a6b2c8.0123456789abcdef"}, "ConfigMap/new": {Content: "*.0123456789abcdef", Adopted: epoch}},
	}
	recorded := &dependency.Workload{UID: w.UID, ResourceVersion: w.ResourceVersion, Marks: dependency.Marks{Hash: present.Hash, Sources: "{}", Recreating: "none"}}
	now := epoch.Add(1234567 * time.Microsecond).In(time.FixedZone("", 3600))
	automatic := policy.NewAutomaticReload(nil, now, time.Minute, "Secret/db")
	requested := policy.NewRequestedReload(&automatic, now.Add(time.Minute), "jane <jane@example.com>", `rotated "by hand" & more`)
	for name, patch := range map[string]func() ([]byte, error){
		"rollout": func() ([]byte, error) {
			return byRollout.RestartPatch(w, &policy.Restart{Present: present, Last: automatic})
		},
		"rolloutAlways": func() ([]byte, error) {
			return byRollout.RestartPatch(w, &policy.Restart{Present: present, Last: requested, Always: true})
		},
		"record": func() ([]byte, error) { return policy.RecordPatch(w, present) },
		"recreate": func() ([]byte, error) {
			return byEviction.RestartPatch(w, &policy.Restart{Present: present, Last: automatic, Pods: []types.UID{"pod-2", "pod-1"}})
		},
		"recreated": func() ([]byte, error) { return policy.EndPatch(w) },
		"forgotten": func() ([]byte, error) { return policy.ForgetPatch(recorded) },
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
	onWorkload := []string{policy.ConfigHashAnnotation, policy.AppliedSourcesAnnotation, policy.LastReloadAnnotation, policy.RecreatingAnnotation}
	onTemplate := []string{policy.ConfigHashAnnotation, policy.ReloadedAtAnnotation}
	for range 500 {
		w := &dependency.Workload{UID: "uid-1", ResourceVersion: "7"}
		entry := func() policy.Entry {
			e := policy.Entry{Content: strings.ReplaceAll(text(), "@", "")}
			if r.IntN(2) == 0 {
				e.Adopted = epoch.Add(time.Duration(r.IntN(1000)) * time.Second)
			}
			return e
		}
		present := policy.Record{Hash: text(), At: epoch, For: text(), Scope: text(), Sources: map[string]policy.Entry{text(): entry(), text(): entry()}}
		now := epoch.Add(time.Duration(r.Int64N(int64(1000 * time.Hour))))
		last := policy.NewAutomaticReload(&policy.LastReload{Automatic: micro(now.Add(-time.Duration(r.Int64N(int64(time.Minute))))), Streak: r.IntN(5)}, now, time.Minute, text())
		if r.IntN(2) == 0 {
			last = policy.NewRequestedReload(&last, now, text(), text())
		}
		for kind, patch := range map[string]func() ([]byte, error){
			"rollout": func() ([]byte, error) {
				return byRollout.RestartPatch(w, &policy.Restart{Present: present, Last: last, Always: r.IntN(2) == 0})
			},
			"record": func() ([]byte, error) { return policy.RecordPatch(w, present) },
			"recreate": func() ([]byte, error) {
				return byEviction.RestartPatch(w, &policy.Restart{Present: present, Last: last, Always: r.IntN(2) == 0})
			},
			"recreated": func() ([]byte, error) { return policy.EndPatch(w) },
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
			read, want := policy.AnnotatedWorkload(written, nil), present
			if kind != "record" {
				want.At = last.Time.UTC()
			}
			if kind == "rollout" {
				want.For = present.Hash
			}
			if kind == "recreate" {
				want.Sources = map[string]policy.Entry{}
				for id, e := range present.Sources {
					want.Sources[id] = policy.Entry{Content: e.Content, Adopted: last.Time.Truncate(time.Second)}
				}
			}
			if diff := cmp.Diff(want, policy.RecordOf(read)); diff != "" {
				t.Errorf("%s (-written +read):\n%s", kind, diff)
			}
			if kind == "record" {
				continue
			}
			// With microseconds, like every time of this type.
			reload := rounded(last)
			reload.Evicted = kind == "recreate"
			if diff := cmp.Diff(reload, *policy.LastReloadOf(read)); diff != "" {
				t.Errorf("%s (-written +read):\n%s", kind, diff)
			}
		}
	}
}

func rounded(l policy.LastReload) policy.LastReload {
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

// What is no record of configdep's says nothing, however long it is.
func TestRecordOf_OfAWorkload(t *testing.T) {
	const hash = "v1.01234567.00112233445566778899aabbccddeeff"
	none := policy.Record{Hash: hash}
	long := strings.Repeat("x", policy.MaxHash+1)
	for sources, want := range map[string]policy.Record{
		`{"sources":{"Secret/db":"*.d"}}`: {Hash: hash, Sources: map[string]policy.Entry{"Secret/db": {Content: "*.d"}}},
		`{"at":"2026-03-01T12:00:00Z","for":"h","scope":"s","sources":{"Secret/db":"*.d@1772366400"},"more":1}`: {
			Hash: hash, At: epoch, For: "h", Scope: "s", Sources: map[string]policy.Entry{"Secret/db": {Content: "*.d", Adopted: epoch.Local()}},
		},
		`{"sources":{"Secret/db":"*.d@soon"}}`: {Hash: hash, Sources: map[string]policy.Entry{"Secret/db": {Content: "*.d"}}},
		`{"sources":{}}`:                       {Hash: hash, Sources: map[string]policy.Entry{}},
		``:                                     none, `null`: none, `{`: none, `[]`: none, `{}`: none, `{"sources":null}`: none, `{"sources":{"a":"*.d","b":2}}`: none,
		`{"Secret/db":"*.d.1"}`:                         none, // of an earlier version
		`{"at":"today","sources":{}}`:                   none,
		`{"for":"` + long + `","sources":{}}`:           none,
		`{"scope":"` + long + `","sources":{}}`:         none,
		`{"sources":{"a":"` + long + `"}, "scope": []}`: none,
	} {
		got := policy.RecordOf(policy.AnnotatedWorkload(map[string]string{policy.ConfigHashAnnotation: hash, policy.AppliedSourcesAnnotation: sources}, nil))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", sources, diff)
		}
	}
	for value, want := range map[string]string{"": "", hash: hash, strings.Repeat("0", 200_000): "invalid"} {
		if got := policy.RecordOf(&dependency.Workload{Marks: dependency.Marks{Hash: value}}).Hash; got != want {
			t.Errorf("%.60q is read as %.60q, want %q", value, got, want)
		}
	}
}

// A record has one entry for each source that counts, also of those that only a glob names, and reveals no names of keys and no content. Records of one
// version are compared with what the next one computes: another format would make every workload adopt again after an upgrade.
func TestPresent_KeepsItsFormat(t *testing.T) {
	x := newWorld(t, podOf(env(dependency.Secret, "db", "password"), envFrom(dependency.ConfigMap, "settings"), optionalEnvFrom(dependency.Secret, "extra")),
		secret("db", "password", "hunter2"), configMap("settings", "a", "1", "b", "1"), secret("feature-1", "a", "1"), secret("feature-2", "a", "1"))
	x.annotate(policy.SourcesAnnotation, "secret/feature-*,configmap/none-*", policy.ExcludeAnnotation, "secret/feature-2,secret/a,configmap/b")
	x.act()
	want := `{"at":"2026-03-01T12:00:00Z","scope":"4c737465424fd59b","sources":{"ConfigMap/settings":"*.778e8897ca9f303f","Secret/db":"90a6b2c8.a02ee99fedfd4336","Secret/extra":"*.78d6ba4c729bb829","Secret/feature-1":"*.5154a9474a5e8488"}}`
	if got := x.deployment.Annotations[policy.AppliedSourcesAnnotation]; got != want {
		t.Errorf("record = %s\nwant %s", got, want)
	}
	if got, want := x.deployment.Annotations[policy.ConfigHashAnnotation], "v1.989cd9c9.135fca725edf6532872aa25c3df3032e"; got != want {
		t.Errorf("hash = %s, want %s", got, want)
	}
}

func TestLastReloadOf_OfAWorkload(t *testing.T) {
	for value, want := range map[string]*policy.LastReload{
		`{"time":"2026-03-01T12:00:00.000001Z","trigger":"Request","requestedBy":"jane","reason":"why"}`: {
			Time: *micro(epoch.Add(time.Microsecond)), Trigger: policy.TriggerRequest, RequestedBy: "jane", Reason: "why",
		},
		`{"time":"2026-03-01T13:00:00.000000+01:00","automatic":"2026-03-01T12:00:00.000000Z","streak":2}`: {
			Time: *micro(epoch), Automatic: micro(epoch), Streak: 2,
		},
		``: nil, `{`: nil, `{}`: nil, `null`: nil, `[]`: nil, `"now"`: nil, `{"time":null}`: nil, `{"time":"today"}`: nil,
		`{"time":"2026-03-01T12:00:00.000000Z","streak":"many"}`:     nil,
		`{"time":"2026-03-01T12:00:00.000000Z","automatic":"today"}`: nil,
	} {
		got := policy.LastReloadOf(policy.AnnotatedWorkload(map[string]string{policy.LastReloadAnnotation: value}, nil))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", value, diff)
		}
	}
	if got := policy.LastReloadOf(&dependency.Workload{}); got != nil {
		t.Errorf("without an annotation, last reload = %+v, want nil", got)
	}
}

// TestInterval_BetweenRestarts: the interval doubles with a streak, up to an hour, or more if the
// policy says so. No value of an annotation makes it shorter, or takes long to compute.
func TestInterval_BetweenRestarts(t *testing.T) {
	for _, tc := range []struct {
		minimum time.Duration
		streak  int
		want    time.Duration
	}{
		{10 * time.Second, 0, 10 * time.Second},
		{10 * time.Second, 1, 10 * time.Second},
		{10 * time.Second, 2, 20 * time.Second},
		{10 * time.Second, 5, 160 * time.Second},
		{10 * time.Second, 9, 2560 * time.Second},
		{10 * time.Second, 10, time.Hour},
		{10 * time.Second, 1000, time.Hour},
		{10 * time.Second, math.MaxInt, time.Hour},
		{10 * time.Second, -1, 10 * time.Second},
		{10 * time.Second, math.MinInt, 10 * time.Second},
		{time.Nanosecond, math.MaxInt, time.Hour},
		{0, 1, 0},
		{0, math.MaxInt, 0},
		{time.Hour, 3, time.Hour},
		{2 * time.Hour, 1, 2 * time.Hour},
		{2 * time.Hour, 5, 2 * time.Hour},
		{math.MaxInt64, 5, math.MaxInt64},
	} {
		if got := policy.Interval(tc.minimum, tc.streak); got != tc.want {
			t.Errorf("interval(%v, %d) = %v, want %v", tc.minimum, tc.streak, got, tc.want)
		}
	}
}

// TestNewAutomaticReload_StreakGrowsAndEnds: a restart within twice the interval since the last one belongs
// to the streak; a longer pause ends the streak.
func TestNewAutomaticReload_StreakGrowsAndEnds(t *testing.T) {
	now := epoch
	var last *policy.LastReload
	restart := func(after, minInterval time.Duration) int {
		now = now.Add(after)
		l := policy.NewAutomaticReload(last, now, minInterval, "Secret/db")
		last = &l
		return l.Streak
	}
	for i, tc := range []struct {
		after time.Duration
		want  int
	}{
		{0, 1},
		{10 * time.Second, 2},
		{39 * time.Second, 3},   // the interval is 20 s
		{80*time.Second - 1, 4}, // 40 s
		{160 * time.Second, 1},  // 80 s: exactly twice is a pause
		{20*time.Second - 1, 2}, //
		{40*time.Second - 1, 3}, //
		{24 * time.Hour, 1},     //
	} {
		if got := restart(tc.after, 10*time.Second); got != tc.want {
			t.Errorf("restart %d, after %v: streak = %d, want %d", i, tc.after, got, tc.want)
		}
	}
	if got := restart(time.Millisecond, 0); got != 1 {
		t.Errorf("without a minimum interval, streak = %d", got)
	}
}

// TestNotBefore_RequestedReloadHoldsNothingUpAndIsNotHeldUp: a requested restart does not count as an
// automatic one, and does not reset the streak of those.
func TestNotBefore_RequestedReloadHoldsNothingUpAndIsNotHeldUp(t *testing.T) {
	first := policy.NewAutomaticReload(nil, epoch, time.Minute, "Secret/db")
	second := policy.NewAutomaticReload(&first, epoch.Add(time.Minute), time.Minute, "Secret/db")
	requested := policy.NewRequestedReload(&second, epoch.Add(time.Minute+time.Second), "jane", "why")
	want := policy.LastReload{
		Time: *micro(epoch.Add(time.Minute + time.Second)), Trigger: policy.TriggerRequest, RequestedBy: "jane", Reason: "why",
		Automatic: micro(epoch.Add(time.Minute)), Streak: 2,
	}
	if diff := cmp.Diff(want, requested); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got, want := policy.NotBefore(&requested, time.Minute, epoch), epoch.Add(3*time.Minute); !got.Equal(want) {
		t.Errorf("after a requested restart, NotBefore = %v, want %v", got, want)
	}
	if third := policy.NewAutomaticReload(&requested, epoch.Add(4*time.Minute), time.Minute, "Secret/db"); third.Streak != 3 {
		t.Errorf("streak = %d, want 3", third.Streak)
	}
	only := policy.NewRequestedReload(nil, epoch, "jane", "")
	if got := policy.NotBefore(&only, time.Hour, epoch); !got.IsZero() {
		t.Errorf("a requested restart delays automatic ones until %v", got)
	}
}

// TestNotBefore_ClockOfAnotherReplica: the last leader's clock may have been a little ahead, which is
// respected; a time far ahead is invalid, and must not stop restarts for years.
func TestNotBefore_ClockOfAnotherReplica(t *testing.T) {
	for ahead, want := range map[time.Duration]time.Time{
		-time.Minute:         epoch,
		0:                    epoch.Add(time.Minute),
		5 * time.Second:      epoch.Add(time.Minute + 5*time.Second),
		time.Hour + 1:        {},
		24 * 365 * time.Hour: {},
		math.MaxInt64:        {},
	} {
		last := policy.LastReload{Automatic: micro(epoch.Add(ahead)), Streak: 1}
		if got := policy.NotBefore(&last, time.Minute, epoch); !got.Equal(want) {
			t.Errorf("%v ahead: NotBefore = %v, want %v", ahead, got, want)
		}
		if next := policy.NewAutomaticReload(&last, epoch, time.Minute, "Secret/db"); (next.Streak == 1) != want.IsZero() && ahead > 0 {
			t.Errorf("%v ahead: streak = %d", ahead, next.Streak)
		}
	}
}

// Patches of annotations remove only what exists, and the one that ends an eviction writes a removed record again.
func TestPatches_RemoveWhatIsOutdated(t *testing.T) {
	present := policy.Record{Hash: "v1.k.h", At: epoch, Sources: map[string]policy.Entry{"Secret/db": {Content: "*.d"}}}
	const at = `{"at":"2026-03-01T12:00:00Z","sources":{"Secret/db":"*.d"}}`
	for name, tt := range map[string]struct {
		before map[string]string
		patch  func(*dependency.Workload) ([]byte, error)
		want   map[string]string
	}{
		"a record": {nil, func(w *dependency.Workload) ([]byte, error) { return policy.RecordPatch(w, present) }, map[string]string{"config-hash": "v1.k.h", "applied-sources": at}},
		"a record, while pods are evicted": {
			map[string]string{policy.RecreatingAnnotation: "a,b"}, func(w *dependency.Workload) ([]byte, error) { return policy.RecordPatch(w, present) },
			map[string]string{"config-hash": "v1.k.h", "applied-sources": at},
		},
		"an eviction ends":  {map[string]string{policy.RecreatingAnnotation: "a"}, policy.EndPatch, map[string]string{"recreating": "-"}},
		"nothing to forget": {nil, policy.ForgetPatch, map[string]string{}},
		"only a hash":       {map[string]string{policy.ConfigHashAnnotation: "h"}, policy.ForgetPatch, map[string]string{"config-hash": "-"}},
		"opted out while pods are evicted": {
			map[string]string{policy.ConfigHashAnnotation: "h", policy.AppliedSourcesAnnotation: at, policy.RecreatingAnnotation: "a", policy.LastReloadAnnotation: "{}"}, policy.ForgetPatch,
			map[string]string{"config-hash": "-", "applied-sources": "-", "recreating": "-"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			patch, err := tt.patch(policy.AnnotatedWorkload(tt.before, nil))
			got, _ := annotationsOf(t, patch, err)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	x := oneSecret(t)
	x.adopt()
	w := x.workload()
	x.annotate(policy.ConfigHashAnnotation, "", policy.AppliedSourcesAnnotation, "")
	patch, err := policy.EndPatch(x.workload())
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
		patch, err := (&policy.Policy{}).RestartPatch(w, &policy.Restart{Last: policy.NewRequestedReload(nil, epoch.Add(time.Second/2), "me", ""), Always: true})
		_, template := annotationsOf(t, patch, err)
		if diff := cmp.Diff(want, template["reloaded-at"]); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		w.Marks.ReloadedAt = template["reloaded-at"]
	}
}

// Other clients can write annotations of up to 256 kB, and what is read from them is shown, logged and kept.
func TestLastReloadOf_BoundsTexts(t *testing.T) {
	at := metav1.NewMicroTime(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	read := func(l policy.LastReload) *policy.LastReload {
		value, err := json.Marshal(l)
		if err != nil {
			t.Fatal(err)
		}
		return policy.LastReloadOf(&dependency.Workload{Marks: dependency.Marks{LastReload: string(value)}})
	}
	// What configdep writes is read as it was written.
	name := strings.Repeat("n", 253)
	longest := strings.Repeat("ö", 256)
	for _, l := range []policy.LastReload{
		{Time: at, Trigger: "SecretProviderClass/" + name, Automatic: &at, Streak: 3},
		{Time: at, Trigger: policy.TriggerRequest, RequestedBy: longest, Reason: longest},
		{Time: at, Trigger: policy.TriggerRequest, RequestedBy: strings.Repeat("<", 256), Reason: strings.Repeat("&", 256)},
		policy.NewRequestedReload(nil, at.Time, strings.Repeat("<", 100_000), longest),
	} {
		got := read(l)
		if got == nil || got.Trigger != l.Trigger || got.RequestedBy != l.RequestedBy || got.Reason != l.Reason || got.Streak != l.Streak {
			t.Errorf("%+v is read as %+v", l, got)
		}
	}
	// Longer texts are cut, and the times are kept.
	got := read(policy.LastReload{Time: at, Trigger: "SecretProviderClass/" + name + "x", RequestedBy: longest + "x", Reason: longest + "xyz", Automatic: &at, Streak: 3})
	if got == nil || got.Trigger != policy.TriggerUnknown || got.Streak != 3 || !got.Automatic.Equal(&at) {
		t.Fatalf("%+v", got)
	}
	for _, text := range []string{got.RequestedBy, got.Reason} {
		if utf8.RuneCountInString(text) != 256 || !strings.HasSuffix(text, "ö…") {
			t.Errorf("a text of %d characters is %q", utf8.RuneCountInString(text), text)
		}
	}
	// One that is far longer is none of configdep's.
	if got := read(policy.LastReload{Time: at, Reason: strings.Repeat("x", 240_000)}); got != nil {
		t.Errorf("a record of 240 kB is read: %.100v", got)
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

// Flux reverts what managers with such names have set.
func TestFieldManager_IsNotTakenForKubectl(t *testing.T) {
	if strings.HasPrefix(policy.FieldManager, "kubectl") {
		t.Errorf("FieldManager = %q", policy.FieldManager)
	}
}
