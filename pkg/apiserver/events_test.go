// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"
)

// written is a sink that reports each event to the test.
type written chan struct{}

func (w written) Create(e *corev1.Event) (*corev1.Event, error)          { close(w); return e, nil }
func (w written) Update(e *corev1.Event) (*corev1.Event, error)          { close(w); return e, nil }
func (w written) Patch(e *corev1.Event, _ []byte) (*corev1.Event, error) { close(w); return e, nil }

// Events must not slow down the restarts that they report, and must not be lost.
func TestEventsLetRestartsGoFirst(t *testing.T) {
	for name, release := range map[string]func(*atomic.Bool, *testingclock.FakeClock){
		"until there are none": func(busy *atomic.Bool, clock *testingclock.FakeClock) {
			busy.Store(false)
			clock.Step(patienceStep)
		},
		"for a limited time": func(_ *atomic.Bool, clock *testingclock.FakeClock) { clock.Step(patience) },
	} {
		t.Run(name, func(t *testing.T) {
			clock := testingclock.NewFakeClock(time.Now())
			var busy atomic.Bool
			busy.Store(true)
			done := make(written)
			sink := &deferredEventSink{EventSink: done, busy: busy.Load, clock: clock}
			go func() { _, _ = sink.Create(&corev1.Event{LastTimestamp: metav1.NewTime(clock.Now())}) }()
			for !clock.HasWaiters() {
				select {
				case <-done:
					t.Fatal("the event was written while workloads were waiting")
				default:
					runtime.Gosched()
				}
			}
			release(&busy, clock)
			<-done
		})
	}
}
