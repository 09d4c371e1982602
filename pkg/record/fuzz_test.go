// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/configdep/configdep/pkg/dependency"
)

var epoch = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

// FuzzLastReload: a value that is read can be written, and is then read as the same value.
func FuzzLastReload(f *testing.F) {
	f.Add(`{"time":"2026-03-01T12:00:00.000001Z","trigger":"Request","requestedBy":"jane","automatic":"2026-03-01T12:00:00.000000Z","streak":3}`)
	f.Add(`{"time":"2026-03-01T12:00:00.000000+14:00","streak":-1}`)
	f.Fuzz(func(t *testing.T, value string) {
		w := &dependency.Workload{Marks: MarksOf(map[string]string{LastReloadAnnotation: value})}
		last := LastReloadOf(w)
		if last == nil {
			return
		}
		if last.Time.IsZero() {
			t.Errorf("%q is read as a restart without a time", value)
		}
		next := NewAutomaticReload(last, epoch, time.Second, "Secret/db")
		if at := NotBefore(&next, time.Second, epoch); at.Before(epoch.Add(time.Second)) || at.After(epoch.Add(time.Hour)) {
			t.Errorf("after %q and another restart, the next one is allowed at %v", value, at)
		}
		if at := NotBefore(last, time.Second, epoch); at.After(epoch.Add(2 * time.Hour)) {
			t.Errorf("%q delays restarts until %v", value, at)
		}
		w.Marks.LastReload = last.Text()
		if year := last.Time.UTC().Year(); year < 0 || year > 9999 || strings.Contains(last.Text(), "null") {
			return // such times cannot be written
		}
		if diff := cmp.Diff(last, LastReloadOf(w)); diff != "" {
			t.Errorf("%q (-read +read again):\n%s", value, diff)
		}
	})
}

// FuzzRecord: any client can write annotations. A record that is read can be written, and is then read as the same record.
func FuzzRecord(f *testing.F) {
	f.Add("v1.a.b", `{"at":"2026-03-01T12:00:00.5Z","for":"v1.a.c","scope":"s","sources":{"Secret/db":"90a6b2c8.01@1772366400","ConfigMap/a":"*"}}`)
	f.Add("", `{"at":"9999-12-31T23:59:59-14:00","sources":{"Secret/db":"@9223372036854775807"}}`)
	f.Add("v1", "null")
	f.Fuzz(func(t *testing.T, hash, sources string) {
		read := recordFrom(hash, sources)
		if read.Sources == nil {
			return
		}
		again := recordFrom(read.Hash, read.Text())
		if diff := cmp.Diff(read, again); diff != "" {
			t.Errorf("%q (-read +read again):\n%s", sources, diff)
		}
	})
}
