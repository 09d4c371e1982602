// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package window_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/robfig/cron/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/window"
)

// Windows, and the schedules of budgets, open at the times at which a CronJob of the same schedule and time zone has runs, also when the clocks change. A
// time that does not exist is left out, and one that is there twice counts twice.
func TestWindow_OpensAsCronJobsRun(t *testing.T) {
	for _, c := range []struct{ zone, schedule, opens string }{
		// At 01:00Z, 02:00 becomes 03:00 (+01:00, +02:00).
		{"Europe/Berlin", "30 2 * * *", "2025-03-29T01:30Z 2025-03-31T00:30Z"},
		{"Europe/Berlin", "0 2 * * *", "2025-03-29T01:00Z 2025-03-31T00:00Z"},
		{"Europe/Berlin", "0 3 * * *", "2025-03-29T02:00Z 2025-03-30T01:00Z 2025-03-31T01:00Z"},
		{"Europe/Berlin", "30 2 * * 0", "2025-03-23T01:30Z 2025-04-06T00:30Z"},
		{"Europe/Berlin", "0 3 * * 0", "2025-03-23T02:00Z 2025-03-30T01:00Z 2025-04-06T01:00Z"},
		{"Europe/Berlin", "0 * * * *", "2025-03-29T23:00Z 2025-03-30T00:00Z 2025-03-30T01:00Z 2025-03-30T02:00Z"},
		{"Europe/Berlin", "0 */2 * * *", "2025-03-29T23:00Z 2025-03-30T02:00Z 2025-03-30T04:00Z"},
		// At 01:00Z, 03:00 becomes 02:00 (+02:00, +01:00).
		{"Europe/Berlin", "30 2 * * *", "2025-10-25T00:30Z 2025-10-26T00:30Z 2025-10-26T01:30Z 2025-10-27T01:30Z"},
		{"Europe/Berlin", "0 2 * * *", "2025-10-25T00:00Z 2025-10-26T00:00Z 2025-10-26T01:00Z 2025-10-27T01:00Z"},
		{"Europe/Berlin", "0 3 * * *", "2025-10-25T01:00Z 2025-10-26T02:00Z 2025-10-27T02:00Z"},
		{"Europe/Berlin", "30 2 * * 0", "2025-10-19T00:30Z 2025-10-26T00:30Z 2025-10-26T01:30Z 2025-11-02T01:30Z"},
		{"Europe/Berlin", "0 * * * *", "2025-10-25T23:00Z 2025-10-26T00:00Z 2025-10-26T01:00Z 2025-10-26T02:00Z"},
		{"Europe/Berlin", "0 */2 * * *", "2025-10-25T22:00Z 2025-10-26T00:00Z 2025-10-26T01:00Z 2025-10-26T03:00Z"},

		// At 07:00Z, 02:00 becomes 03:00 (-05:00, -04:00).
		{"America/New_York", "30 2 * * *", "2025-03-08T07:30Z 2025-03-10T06:30Z"},
		{"America/New_York", "0 3 * * *", "2025-03-08T08:00Z 2025-03-09T07:00Z 2025-03-10T07:00Z"},
		{"America/New_York", "30 2 * * 0", "2025-03-02T07:30Z 2025-03-16T06:30Z"},
		{"America/New_York", "30 * * * *", "2025-03-09T05:30Z 2025-03-09T06:30Z 2025-03-09T07:30Z 2025-03-09T08:30Z"},
		// At 06:00Z, 02:00 becomes 01:00 (-04:00, -05:00).
		{"America/New_York", "30 1 * * *", "2025-11-01T05:30Z 2025-11-02T05:30Z 2025-11-02T06:30Z 2025-11-03T06:30Z"},
		{"America/New_York", "0 2 * * *", "2025-11-01T06:00Z 2025-11-02T07:00Z 2025-11-03T07:00Z"},
		{"America/New_York", "30 1 * * 0", "2025-10-26T05:30Z 2025-11-02T05:30Z 2025-11-02T06:30Z 2025-11-09T06:30Z"},
		{"America/New_York", "30 * * * *", "2025-11-02T04:30Z 2025-11-02T05:30Z 2025-11-02T06:30Z 2025-11-02T07:30Z"},

		// At 15:00Z, 02:00 becomes 01:30 (+11:00, +10:30).
		{"Australia/Lord_Howe", "45 1 * * *", "2025-04-04T14:45Z 2025-04-05T14:45Z 2025-04-05T15:15Z 2025-04-06T15:15Z"},
		{"Australia/Lord_Howe", "30 2 * * *", "2025-04-04T15:30Z 2025-04-05T16:00Z 2025-04-06T16:00Z"},
		{"Australia/Lord_Howe", "45 1 * * 0", "2025-03-29T14:45Z 2025-04-05T14:45Z 2025-04-05T15:15Z 2025-04-12T15:15Z"},
		{"Australia/Lord_Howe", "0 * * * *", "2025-04-05T13:00Z 2025-04-05T14:00Z 2025-04-05T15:30Z 2025-04-05T16:30Z"},
		{"Australia/Lord_Howe", "30 * * * *", "2025-04-05T13:30Z 2025-04-05T14:30Z 2025-04-05T15:00Z 2025-04-05T16:00Z"},
		// At 15:30Z, 02:00 becomes 02:30 (+10:30, +11:00).
		{"Australia/Lord_Howe", "15 2 * * *", "2025-10-03T15:45Z 2025-10-05T15:15Z"},
		{"Australia/Lord_Howe", "30 2 * * *", "2025-10-03T16:00Z 2025-10-04T15:30Z 2025-10-05T15:30Z"},
		{"Australia/Lord_Howe", "15 2 * * 0", "2025-09-27T15:45Z 2025-10-11T15:15Z"},
		{"Australia/Lord_Howe", "0 * * * *", "2025-10-04T13:30Z 2025-10-04T14:30Z 2025-10-04T16:00Z 2025-10-04T17:00Z"},
		{"Australia/Lord_Howe", "30 * * * *", "2025-10-04T14:00Z 2025-10-04T15:00Z 2025-10-04T15:30Z 2025-10-04T16:30Z"},

		// At 02:00Z, as Ramadan begins, 03:00 becomes 02:00 (+01:00, +00:00).
		{"Africa/Casablanca", "30 2 * * *", "2025-02-22T01:30Z 2025-02-23T01:30Z 2025-02-23T02:30Z 2025-02-24T02:30Z"},
		{"Africa/Casablanca", "30 2 * * 0", "2025-02-16T01:30Z 2025-02-23T01:30Z 2025-02-23T02:30Z 2025-03-02T02:30Z"},
		{"Africa/Casablanca", "0 * * * *", "2025-02-23T00:00Z 2025-02-23T01:00Z 2025-02-23T02:00Z 2025-02-23T03:00Z"},
		// At 02:00Z, when it is over, 02:00 becomes 03:00.
		{"Africa/Casablanca", "30 2 * * *", "2025-04-05T02:30Z 2025-04-07T01:30Z"},
		{"Africa/Casablanca", "30 2 * * 0", "2025-03-30T02:30Z 2025-04-13T01:30Z"},
		{"Africa/Casablanca", "0 * * * *", "2025-04-06T00:00Z 2025-04-06T01:00Z 2025-04-06T02:00Z 2025-04-06T03:00Z"},

		// The clocks do not change (+05:30).
		{"Asia/Kolkata", "30 2 * * *", "2025-03-29T21:00Z 2025-03-30T21:00Z 2025-03-31T21:00Z"},
		{"Asia/Kolkata", "0 0 * * 0", "2025-03-29T18:30Z 2025-04-05T18:30Z"},
		{"Asia/Kolkata", "0 * * * *", "2025-10-26T00:30Z 2025-10-26T01:30Z 2025-10-26T02:30Z"},

		// Where clocks change by half an hour, the library has faults, which CronJobs have as well: it leaves out the first 03:00 after 02:00 became 01:30, and
		// takes 02:30, which 02:00 became, for 01:30.
		{"Australia/Lord_Howe", "0 3 * * *", "2025-04-04T16:00Z 2025-04-06T16:30Z"},
		{"Australia/Lord_Howe", "30 1 * * *", "2025-10-03T15:00Z 2025-10-04T15:00Z 2025-10-04T15:30Z 2025-10-05T14:30Z"},
	} {
		t.Run(c.zone+" "+c.schedule+" "+c.opens[:10], func(t *testing.T) {
			const layout, duration = "2006-01-02T15:04Z07:00", 10 * time.Minute
			want := strings.Fields(c.opens)
			first, err := time.Parse(layout, want[0])
			if err != nil {
				t.Fatal(err)
			}
			cronJob, err := cron.ParseStandard("TZ=" + c.zone + " " + c.schedule) // as the controller of CronJobs does
			if err != nil {
				t.Fatal(err)
			}
			one := window.Window{Kind: window.Allow, Schedule: c.schedule, Duration: metav1.Duration{Duration: duration}, TimeZone: c.zone}
			windows, err := window.New([]window.Window{one})
			if err != nil {
				t.Fatal(err)
			}
			if err := one.Complete(); err != nil {
				t.Fatal(err)
			}
			for name, next := range map[string]func(time.Time) time.Time{
				"the CronJob": cronJob.Next,
				"the windows": func(at time.Time) time.Time {
					opens, _ := windows.Opens(at.Add(duration)) // it has just closed
					return opens
				},
				"the schedule of a budget": func(at time.Time) time.Time {
					_, opens := one.State(at.Add(duration))
					if open, until := one.State(opens); !open || !until.Equal(opens.Add(duration)) {
						t.Errorf("at %v it is open: %t, until %v", opens, open, until)
					}
					return opens
				},
			} {
				var got []string
				for at := next(first.Add(-duration - time.Second)); len(got) < len(want); at = next(at) {
					got = append(got, at.UTC().Format(layout))
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s (-want +got):\n%s", name, diff)
				}
			}
		})
	}
}
