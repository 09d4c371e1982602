// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
)

// deferredEventSink delays events while workloads wait to be restarted, because with many
// workloads the events would compete with the patches at the API server. It delays each
// event only for a limited time, because the broadcaster drops events if its queue is full.
type deferredEventSink struct {
	record.EventSink
	busy  func() bool
	clock clock.Clock
}

// The maximum delay of an event since it happened, and how often its wait is checked.
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
