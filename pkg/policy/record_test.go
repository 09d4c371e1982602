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
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
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
		Hash:    "v1.6f1c.00112233445566778899aabbccddeeff",
		Sources: map[string]string{"Secret/db": "90a6b2c8.0123456789abcdef.1", "ConfigMap/feature-*": "glob."},
	}
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
		"baseline": func() ([]byte, error) { return policy.BaselinePatch(w, present) },
		"recreate": func() ([]byte, error) {
			return byEviction.RestartPatch(w, &policy.Restart{Present: present, Last: automatic, Pods: []types.UID{"pod-2", "pod-1"}})
		},
		"verified":  func() ([]byte, error) { return policy.VerifiedPatch(w, present, now) },
		"recreated": func() ([]byte, error) { return policy.EndPatch(w) },
		"abandoned": func() ([]byte, error) { return policy.AbandonedPatch(w, present) },
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
		present := policy.Record{Hash: text(), Sources: map[string]string{text(): text(), text(): text()}}
		now := epoch.Add(time.Duration(r.Int64N(int64(1000 * time.Hour))))
		last := policy.NewAutomaticReload(&policy.LastReload{Automatic: micro(now.Add(-time.Duration(r.Int64N(int64(time.Minute))))), Streak: r.IntN(5)}, now, time.Minute, text())
		if r.IntN(2) == 0 {
			last = policy.NewRequestedReload(&last, now, text(), text())
		}
		for kind, patch := range map[string]func() ([]byte, error){
			"rollout": func() ([]byte, error) {
				return byRollout.RestartPatch(w, &policy.Restart{Present: present, Last: last, Always: r.IntN(2) == 0})
			},
			"baseline": func() ([]byte, error) { return policy.BaselinePatch(w, present) },
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
			// The record is read as it was written.
			written := map[string]string{}
			for key, value := range annotations {
				written[key], _ = value.(string)
			}
			read := policy.AnnotatedWorkload(written, nil)
			if diff := cmp.Diff(present, policy.RecordOf(read)); diff != "" && present.Hash != "" {
				t.Errorf("%s (-written +read):\n%s", kind, diff)
			}
			if kind == "baseline" {
				continue
			}
			// With microseconds, like every time of this type.
			want := rounded(last)
			want.Evicted = kind == "recreate"
			if diff := cmp.Diff(want, *policy.LastReloadOf(read)); diff != "" {
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

func TestRecordOf_OfAWorkload(t *testing.T) {
	for name, tc := range map[string]struct {
		workload, template map[string]string
		want               policy.Record
	}{
		"nothing": {},
		"on the workload": {
			map[string]string{policy.ConfigHashAnnotation: "v1.k.h", policy.AppliedSourcesAnnotation: `{"Secret/db":"*.d.1"}`}, nil,
			policy.Record{"v1.k.h", map[string]string{"Secret/db": "*.d.1"}},
		},
		"on both: the record of the workload is newer": {
			map[string]string{policy.ConfigHashAnnotation: "v1.k.new", policy.AppliedSourcesAnnotation: "{}"}, map[string]string{policy.ConfigHashAnnotation: "v1.k.old"},
			policy.Record{"v1.k.new", map[string]string{}},
		},
		"only on the template: left-over sources do not belong to the hash": {
			map[string]string{policy.AppliedSourcesAnnotation: `{"Secret/db":"*.d.1"}`}, map[string]string{policy.ConfigHashAnnotation: "v1.k.h"},
			policy.Record{Hash: "v1.k.h"},
		},
		"without sources":     {map[string]string{policy.ConfigHashAnnotation: "v1.k.h"}, nil, policy.Record{Hash: "v1.k.h"}},
		"sources are null":    {map[string]string{policy.ConfigHashAnnotation: "v1.k.h", policy.AppliedSourcesAnnotation: "null"}, nil, policy.Record{Hash: "v1.k.h"}},
		"sources are no JSON": {map[string]string{policy.ConfigHashAnnotation: "v1.k.h", policy.AppliedSourcesAnnotation: "{"}, nil, policy.Record{Hash: "v1.k.h"}},
		"sources are partly invalid": {
			map[string]string{policy.ConfigHashAnnotation: "v1.k.h", policy.AppliedSourcesAnnotation: `{"Secret/a":"*.d.1","Secret/b":2}`}, nil, policy.Record{Hash: "v1.k.h"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, policy.RecordOf(policy.AnnotatedWorkload(tc.workload, tc.template))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
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

// TestEndPatch_WritesARemovedRecordAgain: with the list of sources, if it is known.
func TestEndPatch_WritesARemovedRecordAgain(t *testing.T) {
	for _, bare := range []bool{false, true} {
		x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1"))
		x.adopt()
		if bare {
			x.restart()
			x.edit(func(d *appsv1.Deployment) { delete(d.Annotations, policy.AppliedSourcesAnnotation) })
			x.restart()
		}
		w := x.workload()
		want := map[string]any{policy.RecreatingAnnotation: nil, policy.ConfigHashAnnotation: w.Marks.Hash}
		if !bare {
			want[policy.AppliedSourcesAnnotation] = w.Marks.Sources
		}
		x.edit(func(d *appsv1.Deployment) {
			delete(d.Annotations, policy.ConfigHashAnnotation)
			delete(d.Annotations, policy.AppliedSourcesAnnotation)
		})
		data, err := policy.EndPatch(x.workload())
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			Metadata struct{ Annotations map[string]any }
		}
		if err := json.Unmarshal(data, &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got.Metadata.Annotations); diff != "" {
			t.Errorf("only the hash is known: %v: annotations (-want +got):\n%s", bare, diff)
		}
	}
}
