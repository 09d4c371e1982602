// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/configdep/configdep/pkg/metrics"
)

// worker is a sink that runs.
type worker struct {
	cancel context.CancelFunc
	done   chan struct{}
}

func start(ctx context.Context, t *testing.T, s *Sink) *worker {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	w := &worker{cancel, make(chan struct{})}
	go func() {
		defer close(w.done)
		s.Run(ctx)
	}()
	t.Cleanup(w.stop)
	return w
}

func (w *worker) stop() {
	w.cancel()
	<-w.done
}

func TestSink_RetriesWhatCanSucceed(t *testing.T) {
	for name, tt := range map[string]struct {
		codes    []int
		result   string
		requests int
	}{
		"OK":                   {[]int{200}, metrics.NotificationDelivered, 1},
		"unknown 2xx":          {[]int{299}, metrics.NotificationDelivered, 1},
		"moved":                {[]int{301}, metrics.NotificationRejected, 1},
		"bad request":          {[]int{400}, metrics.NotificationRejected, 1},
		"unknown 4xx":          {[]int{499}, metrics.NotificationRejected, 1},
		"timeout":              {[]int{408, 200}, metrics.NotificationDelivered, 2},
		"too many":             {[]int{429, 200}, metrics.NotificationDelivered, 2},
		"unknown 5xx":          {[]int{599, 200}, metrics.NotificationDelivered, 2},
		"rejected later":       {[]int{503, 500, 404}, metrics.NotificationRejected, 3},
		"the last attempt":     {[]int{500, 500, 500, 500, 500, 500, 500, 200}, metrics.NotificationDelivered, 8},
		"all attempts":         {[]int{500}, metrics.NotificationFailed, 8},
		"status without class": {[]int{999}, metrics.NotificationRejected, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, _ := logs(t)
				counted := counting(t)
				d := statuses(tt.codes...)
				s := mustNew(t, Config{Transport: d})
				running := start(ctx, t, s)
				s.Notify(restarted("web"))
				<-time.After(time.Hour)
				running.stop()
				if got := len(d.received()); got != tt.requests {
					t.Errorf("requests = %d, want %d", got, tt.requests)
				}
				if diff := cmp.Diff(map[string]int{tt.result: 1}, counted()); diff != "" {
					t.Errorf("counted (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// gaps returns the times between the requests that a destination received.
func gaps(d *destination) (out []time.Duration) {
	requests := d.received()
	for i := 1; i < len(requests); i++ {
		out = append(out, requests[i].at.Sub(requests[i-1].at))
	}
	return out
}

func TestSink_BacksOffExponentiallyWithJitter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, _ := logs(t)
		d := statuses(500)
		s := mustNew(t, Config{Transport: d})
		for range 2 { // each event begins with the shortest delay
			d.requests = nil
			e := restarted("web")
			if result, _ := s.deliver(ctx, &e); result != metrics.NotificationFailed {
				t.Fatalf("result = %s, want failed", result)
			}
			got := gaps(d)
			jitter := false
			for i, seconds := range []int{1, 2, 4, 8, 16, 30, 30} {
				least := time.Duration(seconds) * time.Second
				if i >= len(got) || got[i] < least || got[i] > least+least/2 {
					t.Fatalf("delays = %v; number %d should be between %v and half as much more", got, i, least)
				}
				jitter = jitter || got[i] != least
			}
			if !jitter {
				t.Errorf("delays = %v, without jitter", got)
			}
		}
	})
}

func TestSink_HonorsRetryAfter(t *testing.T) {
	for name, tt := range map[string]struct {
		code        int
		value       func(now time.Time) string
		least, most time.Duration
	}{
		"too many, seconds":            {429, func(time.Time) string { return "60" }, time.Minute, time.Minute},
		"unavailable, seconds":         {503, func(time.Time) string { return "60" }, time.Minute, time.Minute},
		"a date":                       {429, func(now time.Time) string { return now.Add(90 * time.Second).UTC().Format(http.TimeFormat) }, 90 * time.Second, 90 * time.Second},
		"a date that is over":          {429, func(now time.Time) string { return now.Add(-time.Hour).UTC().Format(http.TimeFormat) }, time.Second, 1500 * time.Millisecond},
		"a date next year":             {429, func(now time.Time) string { return now.AddDate(1, 0, 0).UTC().Format(http.TimeFormat) }, maxRetryAfter, maxRetryAfter},
		"bounded":                      {429, func(time.Time) string { return "86400" }, maxRetryAfter, maxRetryAfter},
		"it would overflow a duration": {429, func(time.Time) string { return "18446744073709551615" }, maxRetryAfter, maxRetryAfter},
		"it would overflow a number":   {429, func(time.Time) string { return "99999999999999999999999" }, maxRetryAfter, maxRetryAfter},
		"shorter than the delay":       {429, func(time.Time) string { return "0" }, time.Second, 1500 * time.Millisecond},
		"invalid":                      {429, func(time.Time) string { return "soon" }, time.Second, 1500 * time.Millisecond},
		"another status disregards it": {500, func(time.Time) string { return "60" }, time.Second, 1500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, _ := logs(t)
				d := &destination{answer: func(n int, r *http.Request) (*http.Response, error) {
					if n == 1 {
						return status(tt.code, r, "Retry-After", tt.value(time.Now()))
					}
					return status(200, r)
				}}
				s := mustNew(t, Config{Transport: d})
				e := restarted("web")
				if result, err := s.deliver(ctx, &e); result != metrics.NotificationDelivered {
					t.Fatalf("result = %s, %v", result, err)
				}
				if got := gaps(d); len(got) != 1 || got[0] < tt.least || got[0] > tt.most {
					t.Errorf("delays = %v, want one from %v to %v", got, tt.least, tt.most)
				}
			})
		})
	}
}

// The limit of a chat is for all messages, so the next event waits too.
func TestSink_HonorsRetryAfterAcrossEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, _ := logs(t)
		d := &destination{answer: func(n int, r *http.Request) (*http.Response, error) {
			if n <= maxAttempts {
				return status(429, r, "Retry-After", "120")
			}
			return status(200, r)
		}}
		s := mustNew(t, Config{Transport: d})
		first, second := restarted("first"), restarted("second")
		if result, _ := s.deliver(ctx, &first); result != metrics.NotificationFailed {
			t.Fatalf("result = %s, want failed", result)
		}
		if result, err := s.deliver(ctx, &second); result != metrics.NotificationDelivered {
			t.Fatalf("result = %s, %v", result, err)
		}
		got := gaps(d)
		if last := got[len(got)-1]; len(got) != maxAttempts || last != 2*time.Minute {
			t.Errorf("delays = %v, want %d, and the last one 2m", got, maxAttempts)
		}
	})
}

func TestSink_LimitsTheTimeOfARequest(t *testing.T) {
	for name, tt := range map[string]struct{ timeout, want time.Duration }{
		"default": {0, 10 * time.Second}, "configured": {3 * time.Second, 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := mustNew(t, Config{Transport: hanging(), Timeout: tt.timeout})
				start := time.Now()
				err := s.post(t.Context(), nil)
				if took := time.Since(start); took != tt.want || err == nil || err.Error() != "the destination did not answer in time" {
					t.Errorf("after %v, error = %v, want %v", took, err, tt.want)
				}
			})
		})
	}
}

// Events that waited before Run are sent too, in order.
func TestSink_KeepsTheOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, log := logs(t)
		counted := counting(t)
		d := statuses(500, 200)
		s := mustNew(t, Config{Format: Slack, Template: "{{.Name}}", Transport: d})
		s.Notify(restarted("a"))
		s.Notify(restarted("b"))
		running := start(ctx, t, s)
		synctest.Wait()
		s.Notify(restarted("c"))
		<-time.After(time.Minute)
		running.stop()
		var got []string
		for _, r := range d.received() {
			got = append(got, string(r.body))
		}
		if diff := cmp.Diff([]string{`{"text":"a"}`, `{"text":"a"}`, `{"text":"b"}`, `{"text":"c"}`}, got); diff != "" {
			t.Errorf("bodies (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(map[string]int{metrics.NotificationDelivered: 3}, counted()); diff != "" {
			t.Errorf("counted (-want +got):\n%s", diff)
		}
		if strings.Contains(log(), "Lost events") {
			t.Errorf("the log reports losses:\n%s", log())
		}
	})
}
