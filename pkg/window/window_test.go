// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package window_test

import (
	"strings"
	"testing"
	"time"

	"github.com/configdep/configdep/pkg/window"
)

func at(t *testing.T, text string) time.Time {
	t.Helper()
	out, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

const (
	nights    = `{kind: Allow, schedule: "0 22 * * 1-5", duration: 6h, timeZone: Europe/Berlin}`
	weekend   = `{kind: Allow, schedule: "0 0 * * 6", duration: 48h}`
	christmas = `{kind: Deny, schedule: "0 0 20 12 *", duration: 336h}`
	noon      = `{kind: Deny, schedule: "0 12 * * *", duration: 1h}`
)

func TestWindows_Opens(t *testing.T) {
	for name, c := range map[string]struct{ windows, now, opens string }{
		"while one allows":                     {nights, "2026-03-02T22:00:00Z", "2026-03-02T22:00:00Z"}, // 23:00 on Monday in Berlin
		"before it opens":                      {nights, "2026-03-02T20:59:59Z", "2026-03-02T21:00:00Z"}, // 21:59:59
		"as it closes":                         {nights, "2026-03-03T03:00:00Z", "2026-03-03T21:00:00Z"}, // 04:00
		"on the last second":                   {nights, "2026-03-03T02:59:59Z", "2026-03-03T02:59:59Z"}, // 03:59:59
		"from Saturday to Monday":              {nights, "2026-03-07T03:00:00Z", "2026-03-09T21:00:00Z"}, // the one of Friday has closed
		"either of two":                        {nights + ", " + weekend, "2026-03-07T03:00:00Z", "2026-03-07T03:00:00Z"},
		"without one that allows":              {noon, "2026-03-02T11:59:59Z", "2026-03-02T11:59:59Z"},
		"while one denies":                     {noon, "2026-03-02T12:00:00Z", "2026-03-02T13:00:00Z"},
		"denied while it allows":               {weekend + ", " + noon, "2026-03-07T12:30:00Z", "2026-03-07T13:00:00Z"},
		"denied until long after one closed":   {weekend + ", " + christmas, "2026-12-26T12:00:00Z", "2027-01-03T00:00:00Z"}, // of the weekend, its Sunday is left
		"in summer":                            {nights, "2026-07-06T19:59:59Z", "2026-07-06T20:00:00Z"},                     // 22:00 in Berlin
		"an hour that daylight saving skips":   {`{kind: Allow, schedule: "30 2 * * *", duration: 10m, timeZone: Europe/Berlin}`, "2026-03-29T00:00:00Z", "2026-03-30T00:30:00Z"},
		"an hour that daylight saving doubles": {`{kind: Allow, schedule: "30 2 * * *", duration: 10m, timeZone: Europe/Berlin}`, "2026-10-25T00:00:00Z", "2026-10-25T00:30:00Z"},
		"and the second of them, as CronJobs":  {`{kind: Allow, schedule: "30 2 * * *", duration: 10m, timeZone: Europe/Berlin}`, "2026-10-25T00:45:00Z", "2026-10-25T01:30:00Z"},
	} {
		w, err := window.Parse("[" + c.windows + "]")
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for range 2 { // the second time, it is known
			if opens, foreseeable := w.Opens(at(t, c.now)); !foreseeable || !opens.Equal(at(t, c.opens)) {
				t.Errorf("%s: at %s it opens at %v (foreseeable: %t), want %s", name, c.now, opens.UTC(), foreseeable, c.opens)
			}
		}
	}
}

// What was found for a time holds until then, and for no time before.
func TestWindows_Opens_AtAnyTime(t *testing.T) {
	w, err := window.Parse("[" + nights + ", " + weekend + ", " + noon + ", " + christmas + "]")
	if err != nil {
		t.Fatal(err)
	}
	begin := at(t, "2026-12-01T00:00:00Z")
	for i := range 4000 {
		now := begin.Add(time.Duration(i*7919%(60*24*60)) * time.Minute)
		fresh, err := window.Parse("[" + nights + ", " + weekend + ", " + noon + ", " + christmas + strings.Repeat(" ", i%7) + "]")
		if err != nil {
			t.Fatal(err)
		}
		want, _ := fresh.Opens(now)
		if got, foreseeable := w.Opens(now); !foreseeable || !got.Equal(want) {
			t.Fatalf("at %v it opens at %v, want %v", now, got, want)
		}
		// Nothing opens in between.
		for _, between := range []time.Time{now.Add(want.Sub(now) / 2), want.Add(-time.Second)} {
			if opens, _ := w.Opens(between); between.After(now) && between.Before(want) && !opens.Equal(want) {
				t.Fatalf("at %v it opens at %v, and at %v at %v", now, want, between, opens)
			}
		}
	}
}

func TestWindows_NotForeseeable(t *testing.T) {
	w, err := window.Parse(`[{kind: Deny, schedule: "* * * * *", duration: 1h}]`)
	if err != nil {
		t.Fatal(err)
	}
	now := at(t, "2026-03-02T12:00:30Z")
	if again, foreseeable := w.Opens(now); foreseeable || !again.Equal(now.Add(time.Hour)) {
		t.Errorf("again at %v, foreseeable: %t", again, foreseeable)
	}
	var none *window.Windows
	if opens, foreseeable := none.Opens(now); !foreseeable || !opens.Equal(now) {
		t.Errorf("without windows: %v, foreseeable: %t", opens, foreseeable)
	}
}

func TestParse_Refuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                                       "must be a list such as",
		"[]":                                     "must be a list such as",
		nights:                                   "must be a list such as",
		"[{kind: Allow, day: 1}]":                `has the unknown field "day"; must be a list such as`,
		"[" + strings.Repeat(noon+", ", 9) + "]": "more than 8 windows",
		"[" + strings.Repeat(" ", 5000) + "]":    "more than 4096 bytes",
		`[{kind: allow, schedule: "0 22 * * *", duration: 6h}]`:                           `window 1: kind "allow": must be Allow or Deny`,
		"[" + noon + `, {kind: Deny, schedule: "0 22 * *", duration: 6h}]`:                "window 2: schedule \"0 22 * *\": must have the five fields",
		`[{kind: Deny, schedule: "@daily", duration: 6h}]`:                                "must have the five fields",
		`[{kind: Deny, schedule: "TZ=UTC 0 22 * * ", duration: 6h}]`:                      "must have the five fields",
		`[{kind: Deny, schedule: "0 25 * * *", duration: 6h}]`:                            "end of range",
		`[{kind: Deny, schedule: "0 0 30 2 *", duration: 6h}]`:                            "never fires",
		`[{kind: Deny, schedule: "0 2 * * *", duration: 6h, timeZone: Berlin}]`:           `timeZone "Berlin"`,
		`[{kind: Deny, schedule: "0 2 * * *", duration: 6h, timeZone: Local}]`:            `timeZone "Local"`,
		`[{kind: Deny, schedule: "0 2 * * *", duration: 6h, timeZone: ../../etc/passwd}]`: "timeZone",
		`[{kind: Deny, schedule: "0 2 * * *"}]`:                                           "duration 0s: must be between 1m0s and 8784h0m0s",
		`[{kind: Deny, schedule: "0 2 * * *", duration: 9000h}]`:                          "duration 9000h0m0s",
	} {
		for range 2 {
			if w, err := window.Parse(text); err == nil || w != nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v, want %q", text, err, want)
			}
		}
	}
}
