// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package record_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/record"
)

// What is no record of configdep's says nothing, however long it is.
func TestOf_Workload(t *testing.T) {
	const hash = "v1.01234567.00112233445566778899aabbccddeeff"
	none := record.Record{Hash: hash}
	long := strings.Repeat("x", record.MaxHash+1)
	for sources, want := range map[string]record.Record{
		`{"sources":{"Secret/db":"*.d"}}`: {Hash: hash, Sources: map[string]record.Entry{"Secret/db": {Content: "*.d"}}},
		`{"at":"2026-03-01T12:00:00Z","for":"h","scope":"s","sources":{"Secret/db":"*.d@1772366400"},"more":1}`: {
			Hash: hash, At: epoch, For: "h", Scope: "s", Sources: map[string]record.Entry{"Secret/db": {Content: "*.d", Adopted: epoch.Local()}},
		},
		`{"sources":{"Secret/db":"*.d@soon"}}`: {Hash: hash, Sources: map[string]record.Entry{"Secret/db": {Content: "*.d"}}},
		`{"sources":{}}`:                       {Hash: hash, Sources: map[string]record.Entry{}},
		``:                                     none, `null`: none, `{`: none, `[]`: none, `{}`: none, `{"sources":null}`: none, `{"sources":{"a":"*.d","b":2}}`: none,
		`{"Secret/db":"*.d.1"}`:                         none,
		`{"at":"today","sources":{}}`:                   none,
		`{"for":"` + long + `","sources":{}}`:           none,
		`{"scope":"` + long + `","sources":{}}`:         none,
		`{"sources":{"a":"` + long + `"}, "scope": []}`: none,
	} {
		got := record.Of(marked(map[string]string{record.ConfigHashAnnotation: hash, record.AppliedSourcesAnnotation: sources}))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", sources, diff)
		}
	}
	for value, want := range map[string]string{"": "", hash: hash, strings.Repeat("0", 200_000): "invalid"} {
		if got := record.Of(&dependency.Workload{Marks: dependency.Marks{Hash: value}}).Hash; got != want {
			t.Errorf("%.60q is read as %.60q, want %q", value, got, want)
		}
	}
}

func TestLastReloadOf_OfAWorkload(t *testing.T) {
	for value, want := range map[string]*record.LastReload{
		`{"time":"2026-03-01T12:00:00.000001Z","trigger":"Request","requestedBy":"jane","reason":"why"}`: {
			Time: *micro(epoch.Add(time.Microsecond)), Trigger: record.TriggerRequest, RequestedBy: "jane", Reason: "why",
		},
		`{"time":"2026-03-01T13:00:00.000000+01:00","automatic":"2026-03-01T12:00:00.000000Z","streak":2}`: {
			Time: *micro(epoch), Automatic: micro(epoch), Streak: 2,
		},
		``: nil, `{`: nil, `{}`: nil, `null`: nil, `[]`: nil, `"now"`: nil, `{"time":null}`: nil, `{"time":"today"}`: nil,
		`{"time":"2026-03-01T12:00:00.000000Z","streak":"many"}`:     nil,
		`{"time":"2026-03-01T12:00:00.000000Z","automatic":"today"}`: nil,
	} {
		got := record.LastReloadOf(marked(map[string]string{record.LastReloadAnnotation: value}))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", value, diff)
		}
	}
	if got := record.LastReloadOf(&dependency.Workload{}); got != nil {
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
		if got := record.Interval(tc.minimum, tc.streak); got != tc.want {
			t.Errorf("interval(%v, %d) = %v, want %v", tc.minimum, tc.streak, got, tc.want)
		}
	}
}

// TestNewAutomaticReload_StreakGrowsAndEnds: a restart within twice the interval since the last one belongs
// to the streak; a longer pause ends the streak.
func TestNewAutomaticReload_StreakGrowsAndEnds(t *testing.T) {
	now := epoch
	var last *record.LastReload
	restart := func(after, minInterval time.Duration) int {
		now = now.Add(after)
		l := record.NewAutomaticReload(last, now, minInterval, "Secret/db")
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
	first := record.NewAutomaticReload(nil, epoch, time.Minute, "Secret/db")
	second := record.NewAutomaticReload(&first, epoch.Add(time.Minute), time.Minute, "Secret/db")
	requested := record.NewRequestedReload(&second, epoch.Add(time.Minute+time.Second), "jane", "why")
	want := record.LastReload{
		Time: *micro(epoch.Add(time.Minute + time.Second)), Trigger: record.TriggerRequest, RequestedBy: "jane", Reason: "why",
		Automatic: micro(epoch.Add(time.Minute)), Streak: 2,
	}
	if diff := cmp.Diff(want, requested); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got, want := record.NotBefore(&requested, time.Minute, epoch), epoch.Add(3*time.Minute); !got.Equal(want) {
		t.Errorf("after a requested restart, NotBefore = %v, want %v", got, want)
	}
	if third := record.NewAutomaticReload(&requested, epoch.Add(4*time.Minute), time.Minute, "Secret/db"); third.Streak != 3 {
		t.Errorf("streak = %d, want 3", third.Streak)
	}
	only := record.NewRequestedReload(nil, epoch, "jane", "")
	if got := record.NotBefore(&only, time.Hour, epoch); !got.IsZero() {
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
		last := record.LastReload{Automatic: micro(epoch.Add(ahead)), Streak: 1}
		if got := record.NotBefore(&last, time.Minute, epoch); !got.Equal(want) {
			t.Errorf("%v ahead: NotBefore = %v, want %v", ahead, got, want)
		}
		if next := record.NewAutomaticReload(&last, epoch, time.Minute, "Secret/db"); (next.Streak == 1) != want.IsZero() && ahead > 0 {
			t.Errorf("%v ahead: streak = %d", ahead, next.Streak)
		}
	}
}

// Other clients can write annotations of up to 256 kB, and what is read from them is shown, logged and kept.
func TestLastReloadOf_BoundsTexts(t *testing.T) {
	at := metav1.NewMicroTime(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	read := func(l record.LastReload) *record.LastReload {
		value, err := json.Marshal(l)
		if err != nil {
			t.Fatal(err)
		}
		return record.LastReloadOf(&dependency.Workload{Marks: dependency.Marks{LastReload: string(value)}})
	}
	// What configdep writes is read as it was written.
	name := strings.Repeat("n", 253)
	longest := strings.Repeat("ö", 256)
	for _, l := range []record.LastReload{
		{Time: at, Trigger: "SecretProviderClass/" + name, Automatic: &at, Streak: 3},
		{Time: at, Trigger: record.TriggerRequest, RequestedBy: longest, Reason: longest},
		{Time: at, Trigger: record.TriggerRequest, RequestedBy: strings.Repeat("<", 256), Reason: strings.Repeat("&", 256)},
		record.NewRequestedReload(nil, at.Time, strings.Repeat("<", 100_000), longest),
	} {
		got := read(l)
		if got == nil || got.Trigger != l.Trigger || got.RequestedBy != l.RequestedBy || got.Reason != l.Reason || got.Streak != l.Streak {
			t.Errorf("%+v is read as %+v", l, got)
		}
	}
	// Longer texts are cut, and the times are kept.
	got := read(record.LastReload{Time: at, Trigger: "SecretProviderClass/" + name + "x", RequestedBy: longest + "x", Reason: longest + "xyz", Automatic: &at, Streak: 3})
	if got == nil || got.Trigger != record.TriggerUnknown || got.Streak != 3 || !got.Automatic.Equal(&at) {
		t.Fatalf("%+v", got)
	}
	for _, text := range []string{got.RequestedBy, got.Reason} {
		if utf8.RuneCountInString(text) != 256 || !strings.HasSuffix(text, "ö…") {
			t.Errorf("a text of %d characters is %q", utf8.RuneCountInString(text), text)
		}
	}
	// One that is far longer is none of configdep's.
	if got := read(record.LastReload{Time: at, Reason: strings.Repeat("x", 240_000)}); got != nil {
		t.Errorf("a record of 240 kB is read: %.100v", got)
	}
}

// Flux reverts what managers with such names have set.
func TestFieldManager_IsNotTakenForKubectl(t *testing.T) {
	if strings.HasPrefix(record.FieldManager, "kubectl") {
		t.Errorf("FieldManager = %q", record.FieldManager)
	}
}

// A restart evicts exactly the pods that exist when it begins.
func TestPodsToEvict(t *testing.T) {
	for _, pods := range [][]types.UID{nil, {"a"}, {"b", "a", "b"}} {
		named, valid := record.PodsToEvictOf(marked(map[string]string{record.RecreatingAnnotation: record.EncodePods(pods)}))
		if !valid {
			t.Errorf("pods %v: the encoded list is not valid", pods)
		}
		for _, uid := range pods {
			if !named.Has(uid) {
				t.Errorf("pods %v: the encoded list lacks %s", pods, uid)
			}
		}
		if named.Has("c") {
			t.Errorf("pods %v: the encoded list contains a pod that was created later", pods)
		}
	}
	for _, value := range []string{"", "a", "0123456", "01234567,", ",01234567", "01234567,NONE,89abcdef", "01234567, 89abcdef", "0123456789"} {
		if _, valid := record.PodsToEvictOf(marked(map[string]string{record.RecreatingAnnotation: value})); valid {
			t.Errorf("%q is accepted as a list of pods", value)
		}
	}
	if record.EncodePods(nil) == "" {
		t.Error("the annotation for no pods is empty, as if no eviction had begun")
	}
}

var epoch = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

func micro(t time.Time) *metav1.MicroTime {
	m := metav1.NewMicroTime(t)
	return &m
}

// marked returns a workload with annotations that configdep writes.
func marked(annotations map[string]string) *dependency.Workload {
	return &dependency.Workload{Marks: record.MarksOf(annotations)}
}
