// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"math"
	"time"
)

const memoryRounds = 5

// benchmarkFootprint measures the memory of the server in a cluster in which similar programs were measured.
func benchmarkFootprint(ctx context.Context, e *environment) ([]row, error) {
	rss, peak, err := e.memoryIn(ctx, peers)
	if err != nil {
		return nil, err
	}
	return []row{
		{
			name: "footprint", unit: "MB", n: memoryRounds, got: rss.summary(), limit: limit{value: 100},
			note: "VmRSS of " + e.filled.String() + "; Reloader has 344 MB, wave 465 MB in such a cluster.",
		},
		{name: "footprint peak", unit: "MB", n: memoryRounds, got: peak.summary(), limit: limit{value: 120}},
	}, nil
}

// memoryIn starts the server several times in a cluster of the shape and reads its memory when it has settled.
func (e *environment) memoryIn(ctx context.Context, s shape) (rss, peak samples, err error) {
	if err := e.fill(ctx, s); err != nil {
		return nil, nil, err
	}
	for range memoryRounds {
		if _, err := e.restart(ctx); err != nil {
			return nil, nil, err
		}
		m, err := e.settledMemory(ctx)
		if err != nil {
			return nil, nil, err
		}
		say("%v: %.0f MB, peak %.0f MB", e.filled, m.rss, m.peak)
		rss, peak = append(rss, m.rss), append(peak, m.peak)
	}
	return rss, peak, e.awaitServed(ctx)
}

// The memory has settled when it has changed by less than settleShare for settleTime.
const (
	settleTime  = 10 * time.Second
	settleShare = 0.01
	settleLimit = 4 * time.Minute
)

// settledMemory waits until the memory that the start no longer needs has been released.
func (e *environment) settledMemory(ctx context.Context) (memory, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, settleLimit, fmt.Errorf("the memory did not settle within %v", settleLimit))
	defer cancel()
	long := settleTime
	if !e.judged() {
		long /= 10
	}
	reference, since := math.NaN(), time.Now()
	for {
		m, err := memoryOf(e.server().PID())
		if err != nil {
			return m, err
		}
		if !(math.Abs(m.rss-reference) <= settleShare*reference) {
			reference, since = m.rss, time.Now()
		}
		if time.Since(since) >= long {
			return m, nil
		}
		if err := sleep(ctx, 500*time.Millisecond); err != nil {
			return m, err
		}
	}
}
