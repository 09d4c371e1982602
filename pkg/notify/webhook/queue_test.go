// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/configdep/configdep/pkg/metrics"
)

func TestQueue_IsBoundedByNumber(t *testing.T) {
	q := newQueue()
	for i := range maxQueued {
		if lost := q.put(restarted("web")); lost != "" {
			t.Fatalf("event %d is lost: %s", i, lost)
		}
	}
	if lost := q.put(restarted("web")); lost != metrics.NotificationQueueFull {
		t.Errorf("result of one more = %q, want %q", lost, metrics.NotificationQueueFull)
	}
	if _, found := q.pop(); !found {
		t.Fatal("the queue is empty")
	}
	if lost := q.put(restarted("web")); lost != "" {
		t.Errorf("with room for one, result = %q", lost)
	}
	if lost := q.put(restarted("web")); lost == "" {
		t.Error("one event made room for two")
	}
}

func TestQueue_IsBoundedByBytes(t *testing.T) {
	q := newQueue()
	e := restarted("web")
	e.Message = strings.Repeat("m", maxMessage)
	fit := maxQueuedBytes / sizeOf(&e)
	if fit >= maxQueued {
		t.Fatalf("%d events of this size fit, so that the test proves nothing", fit)
	}
	for range 3 { // what is taken is free
		for i := range fit {
			if lost := q.put(e); lost != "" {
				t.Fatalf("event %d is lost: %s", i, lost)
			}
		}
		if lost := q.put(e); lost != metrics.NotificationQueueFull {
			t.Errorf("result of one more = %q, want %q", lost, metrics.NotificationQueueFull)
		}
		for range fit {
			q.pop()
		}
		if _, found := q.pop(); found || q.bytes != 0 {
			t.Errorf("after the last event, one more = %v and bytes = %d", found, q.bytes)
		}
	}
}

func TestQueue_UsesAllBytes(t *testing.T) {
	q := newQueue()
	e := restarted("web")
	q.bytes = maxQueuedBytes - sizeOf(&e)
	if lost := q.put(e); lost != "" {
		t.Errorf("result of an event that just fits = %q", lost)
	}
}

// All texts of an event count, or they could fill the memory.
func TestSizeOf_CountsEachText(t *testing.T) {
	empty := restarted("")
	size := sizeOf(&empty)
	e := restarted("1")
	e.What += "2"
	e.Workload.Kind += "3"
	e.Workload.Namespace += "4"
	e.UID += "5"
	e.Message += "6"
	e.Trigger += "7"
	e.RequestedBy += "8"
	if got := sizeOf(&e); got != size+8 {
		t.Errorf("with 8 bytes more, size = %d, want %d", got, size+8)
	}
}

func TestSink_ReportsLossesOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, log := logs(t)
		s := mustNew(t, Config{Transport: statuses(400)})
		running := start(ctx, t, s)
		lines := func() int { synctest.Wait(); return strings.Count(log(), "Lost events") }
		s.Notify(restarted("web"))
		if got := lines(); got != 1 || !strings.Contains(log(), "lost=1 ") || !strings.Contains(log(), `webhook="oncall"`) {
			t.Fatalf("after the first loss, lines = %d:\n%s", got, log())
		}
		for range 10 {
			<-time.After(5 * time.Second)
			s.Notify(restarted("web"))
		}
		if got := lines(); got != 1 {
			t.Errorf("within a minute, lines = %d, want 1:\n%s", got, log())
		}
		<-time.After(11 * time.Second)
		if got := lines(); got != 2 || !strings.Contains(log(), "lost=10 ") || !strings.Contains(log(), `rejected`) || !strings.Contains(log(), "400 Bad Request") {
			t.Errorf("after a minute, lines = %d, want 2 that say what was lost and why:\n%s", got, log())
		}
		<-time.After(time.Hour)
		if got := lines(); got != 2 {
			t.Errorf("without further losses, lines = %d, want 2:\n%s", got, log())
		}
		s.Notify(restarted("web"))
		if got := lines(); got != 3 {
			t.Errorf("after another loss, lines = %d, want 3:\n%s", got, log())
		}
		s.Notify(restarted("web"))
		synctest.Wait()
		running.stop()
		if got := lines(); got != 4 {
			t.Errorf("at the end, lines = %d, want 4:\n%s", got, log())
		}
	})
}

// A cause that has been logged does not explain later losses.
func TestLosses_ForgetTheErrorOnceLogged(t *testing.T) {
	ctx, log := logs(t)
	l := newLosses()
	l.add(metrics.NotificationRejected, 1, statusError(404))
	l.log(ctx)
	l.add(metrics.NotificationQueueFull, 1, nil)
	l.log(ctx)
	if got := strings.Count(log(), "Lost events"); got != 2 || strings.Count(log(), "404") != 1 {
		t.Errorf("log:\n%s", log())
	}
}
