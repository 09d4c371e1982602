// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/klog/v2"

	"github.com/configdep/configdep/pkg/metrics"
)

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

func TestSink_LogsALossAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, log := logs(t)
		s := mustNew(t, Config{Transport: statuses(400)})
		start(ctx, t, s)
		lines := func() int { synctest.Wait(); return strings.Count(log(), "Lost events") }
		for range 10 {
			s.Notify(restarted("web"))
			<-time.After(5 * time.Second)
		}
		if got := lines(); got != 1 || !strings.Contains(log(), `webhook="oncall"`) || !strings.Contains(log(), `rejected`) || !strings.Contains(log(), "400 Bad Request") {
			t.Errorf("within a minute, lines = %d, want 1 that says why:\n%s", got, log())
		}
		<-time.After(time.Minute)
		s.Notify(restarted("web"))
		if got := lines(); got != 2 {
			t.Errorf("after a minute, lines = %d, want 2:\n%s", got, log())
		}
		s.lose(klog.FromContext(ctx), metrics.NotificationQueueFull, 1, nil)
		if got := lines(); got != 3 {
			t.Errorf("another result, which does not hide why: lines = %d, want 3:\n%s", got, log())
		}
	})
}
