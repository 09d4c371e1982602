// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/configdep/configdep/pkg/metrics"
)

// slow takes a second for each request.
func slow() *destination {
	return &destination{answer: func(_ int, r *http.Request) (*http.Response, error) {
		select {
		case <-time.After(time.Second):
			return status(200, r)
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}}
}

// What happened shortly before the end is sent too, but a destination cannot delay the end for longer than Drain.
func TestSink_Drains(t *testing.T) {
	const limit = 4500 * time.Millisecond
	retryLater := func() *destination {
		return &destination{answer: func(_ int, r *http.Request) (*http.Response, error) {
			return status(429, r, "Retry-After", "200")
		}}
	}
	for name, tt := range map[string]struct {
		destination *destination
		events      int
		took        time.Duration
		want        map[string]int
	}{
		"nothing is left":          {statuses(200), 0, 0, map[string]int{}},
		"all can be sent":          {slow(), 4, 4 * time.Second, map[string]int{metrics.NotificationDelivered: 4}},
		"some can be sent":         {slow(), 9, limit, map[string]int{metrics.NotificationDelivered: 4, metrics.NotificationShutdown: 5}},
		"some are rejected":        {statuses(200, 404, 200), 3, 0, map[string]int{metrics.NotificationDelivered: 2, metrics.NotificationRejected: 1}},
		"no answer":                {hanging(), 3, limit, map[string]int{metrics.NotificationShutdown: 3}},
		"the destination is busy":  {retryLater(), 3, limit, map[string]int{metrics.NotificationShutdown: 3}},
		"during a delay":           {statuses(500), 2, limit, map[string]int{metrics.NotificationShutdown: 2}},
		"it answers after retries": {statuses(500, 200), 2, time.Second, map[string]int{metrics.NotificationDelivered: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, log := logs(t)
				counted := counting(t)
				s := mustNew(t, Config{Transport: tt.destination, Drain: limit})
				s.backoff.Jitter = 0
				running := start(ctx, t, s)
				synctest.Wait()
				for range tt.events {
					s.Notify(restarted("web"))
				}
				stopped := time.Now()
				running.stop()
				if took := time.Since(stopped); took != tt.took {
					t.Errorf("Run ended after %v, want %v", took, tt.took)
				}
				if diff := cmp.Diff(tt.want, counted()); diff != "" {
					t.Errorf("counted (-want +got):\n%s", diff)
				}
				if lost := tt.want[metrics.NotificationDelivered] < tt.events; strings.Contains(log(), "Lost events") != lost {
					t.Errorf("the log reports losses: %t, want %t:\n%s", !lost, lost, log())
				}
			})
		})
	}
}

// Requests that began before the end, and events that come while the sink drains, are not aborted either.
func TestSink_DrainsWhatIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, _ := logs(t)
		counted := counting(t)
		d := slow()
		s := mustNew(t, Config{Transport: d, Drain: 5 * time.Second})
		running := start(ctx, t, s)
		s.Notify(restarted("before"))
		<-time.After(500 * time.Millisecond)
		running.cancel()
		<-time.After(100 * time.Millisecond)
		s.Notify(restarted("during"))
		<-running.done
		s.Notify(restarted("after"))
		if diff := cmp.Diff(map[string]int{metrics.NotificationDelivered: 2, metrics.NotificationShutdown: 1}, counted()); diff != "" {
			t.Errorf("counted (-want +got):\n%s", diff)
		}
		if got := len(d.received()); got != 2 {
			t.Errorf("requests = %d, want 2", got)
		}
	})
}
