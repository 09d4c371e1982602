// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
)

// deferredEventSink writes events when no workload waits to be restarted: with many at once,
// events would take from the API server what the patches need. It waits for a time only,
// as the broadcaster drops events when too many are queued.
type deferredEventSink struct {
	record.EventSink
	busy  func() bool
	clock clock.Clock
}

// How long an event waits at most, from when it happened, and how often it looks.
const (
	patience     = 3 * time.Second
	patienceStep = 10 * time.Millisecond
)

// Create implements record.EventSink.
func (s *deferredEventSink) Create(event *corev1.Event) (*corev1.Event, error) {
	s.wait(event)
	return s.EventSink.Create(event)
}

// Patch implements record.EventSink.
func (s *deferredEventSink) Patch(event *corev1.Event, data []byte) (*corev1.Event, error) {
	s.wait(event)
	return s.EventSink.Patch(event, data)
}

func (s *deferredEventSink) wait(event *corev1.Event) {
	for s.busy() && s.clock.Since(event.LastTimestamp.Time) < patience {
		<-s.clock.After(patienceStep)
	}
}
