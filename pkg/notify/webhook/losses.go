// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"maps"
	"sync"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/configdep/configdep/pkg/metrics"
)

// reportInterval is the shortest time between two lines of the log about lost events, except for the last line.
const reportInterval = time.Minute

// losses counts lost events until they are logged.
type losses struct {
	mu       sync.Mutex
	byResult map[string]int
	err      error         // of the last delivery that failed
	found    chan struct{} // wakes report
}

func newLosses() *losses { return &losses{byResult: map[string]int{}, found: make(chan struct{}, 1)} }

// lose counts events that are lost. The error, if any, must be free of secrets.
func (s *Sink) lose(result string, n int, err error) {
	metrics.Notifications(s.name, result, n)
	s.losses.add(result, n, err)
}

func (l *losses) add(result string, n int, err error) {
	if n == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.byResult[result] += n
	if err != nil {
		l.err = err
	}
	select {
	case l.found <- struct{}{}:
	default:
	}
}

// report logs losses until the context is done.
func (l *losses) report(ctx context.Context, c clock.Clock) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.found:
		}
		l.log(ctx)
		if !sleep(ctx, c, reportInterval) {
			return
		}
	}
}

// log logs what has been lost since it was last called, if anything.
func (l *losses) log(ctx context.Context) {
	l.mu.Lock()
	byResult, err := maps.Clone(l.byResult), l.err
	clear(l.byResult)
	l.err = nil
	l.mu.Unlock()
	lost := 0
	for _, n := range byResult {
		lost += n
	}
	if lost > 0 {
		klog.FromContext(ctx).Error(err, "Lost events", "lost", lost, "byResult", byResult)
	}
}
