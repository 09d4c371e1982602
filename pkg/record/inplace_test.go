// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package record_test

import (
	"encoding/json"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/record"
)

func TestTold_SurvivesTheAnnotations(t *testing.T) {
	told := record.Told{Since: epoch, Again: epoch.Add(time.Minute), Restarts: map[string]int32{"app": 2}}
	for times, value := range map[int]string{1: "abc", 2: "abc-2", 12: "abc-12"} {
		var patch struct{ Metadata metav1.ObjectMeta }
		if err := json.Unmarshal(told.PodPatch("u", "7", "abc", times), &patch); err != nil {
			t.Fatal(err)
		}
		a := patch.Metadata.Annotations
		if a[record.RestartAnnotation] != value || patch.Metadata.UID != "u" || patch.Metadata.ResourceVersion != "7" {
			t.Errorf("patch = %+v, want the value %q", patch, value)
		}
		if got, n := record.ToldOf(a, "abc"); n != times || !got.Since.Equal(told.Since) || !got.Again.Equal(told.Again) || got.Restarts["app"] != 2 {
			t.Errorf("told = %+v, %d times, want %+v, %d times", got, n, told, times)
		}
		if _, n := record.ToldOf(a, "abd"); n != 0 {
			t.Errorf("told of another restart %d times", n)
		}
	}
	for _, a := range []map[string]string{
		nil, {record.RestartAnnotation: "abc"}, {record.RestartAnnotation: "abc", record.RestartingAnnotation: "x"},
		{record.RestartAnnotation: "abc", record.RestartingAnnotation: "{}"},
	} {
		if _, n := record.ToldOf(a, "abc"); n != 0 {
			t.Errorf("%v: told %d times", a, n)
		}
	}
	const since = `{"since":"2026-03-01T12:00:00Z"}`
	if _, n := record.ToldOf(map[string]string{record.RestartAnnotation: "abc--5", record.RestartingAnnotation: since}, "abc"); n != 1 {
		t.Errorf("of an odd value: told %d times, want 1", n)
	}
}

// Of a pod, it is known of which restart it was told last, and no time is believed that has yet to come.
func TestTold_LastAndUntil(t *testing.T) {
	const id = "0123456789abcdef"
	at := func(value string) map[string]string {
		return map[string]string{record.RestartAnnotation: value, record.RestartingAnnotation: `{"since":"2026-03-01T12:00:00Z","again":"2026-03-01T12:03:00Z","restarts":{"app":2}}`}
	}
	for value, want := range map[string]bool{id: true, id + "-3": true, "by hand": false, "": false, "0123": false} {
		if got, told := record.ToldLast(at(value)); told != want || want && got.Restarts["app"] != 2 {
			t.Errorf("%q: %+v, %v, want %v", value, got, told, want)
		}
	}
	if _, told := record.ToldLast(map[string]string{record.RestartAnnotation: id}); told {
		t.Error("a pod that nothing was written of has been told")
	}
	since, again := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC), time.Date(2026, time.March, 1, 12, 3, 0, 0, time.UTC)
	told := record.Told{Since: since, Again: again, Restarts: map[string]int32{"app": 2}}
	for now, want := range map[time.Time]bool{again: false, again.Add(time.Hour): false, again.Add(-time.Second): true, since.Add(-time.Second): true} {
		got := told.Until(now)
		if told.Ahead(now) != want || got.Ahead(now) || got.Restarts["app"] != 2 || !want && (!got.Since.Equal(since) || !got.Again.Equal(again)) {
			t.Errorf("at %v: ahead = %v, then %+v", now, told.Ahead(now), got)
		}
	}
	if got := told.Until(since.Add(time.Minute)); !got.Since.Equal(since) || !got.Again.Equal(since.Add(time.Minute)) {
		t.Errorf("told = %+v, want that only one time changes", got)
	}
}
