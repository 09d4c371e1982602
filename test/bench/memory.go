// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"
)

const memoryRounds = 5

// benchmarkMemory compares the memory of the server with sources of 4 KB and of 20 KB. The server keeps digests and
// drops the content, so the size must not matter.
func benchmarkMemory(ctx context.Context, e *environment) ([]row, error) {
	small, err := e.memoryIn(ctx, standard, "memory-4k")
	if err != nil {
		return nil, err
	}
	big, err := e.memoryIn(ctx, bigValues, "memory-20k")
	if err != nil {
		return nil, err
	}
	compare := func(name string, small, big samples, most limit) []row {
		return []row{
			{name: name + ", sources of 4 KB", unit: "MB", n: memoryRounds, got: small.summary()},
			{
				name: name + ", sources of 20 KB", unit: "MB", n: memoryRounds, got: big.summary(),
				floor: small.summary(), floorName: "the same with sources of 4 KB", limit: most,
			},
		}
	}
	rows := slices.Concat(
		compare("memory", small.rss, big.rss, limit{ratio: 1.1}),
		compare("memory peak", small.peak, big.peak, limit{ratio: 1.1}),
		compare("memory, anonymous", small.anonymous, big.anonymous, limit{}),
	)
	rows[0].note = standard.scaled(e.scale).String() + `. VmRSS when it has not changed for a while, which is before the
  periodic garbage collection of the runtime after two minutes; peak is VmHWM since the start; anonymous is RssAnon, without
  the pages of the program's file. A MB is a million bytes.`
	return rows, nil
}

// benchmarkFootprint measures the memory of the subject in a cluster in which similar programs were measured.
func benchmarkFootprint(ctx context.Context, e *environment) ([]row, error) {
	m, err := e.memoryIn(ctx, peers, "footprint")
	if err != nil {
		return nil, err
	}
	return []row{
		{
			name: "footprint", unit: "MB", n: memoryRounds, got: m.rss.summary(), limit: limit{value: 80},
			note: "VmRSS of " + e.filled.String() + "; Reloader has 344 MB, wave 465 MB in such a cluster.",
		},
		{name: "footprint peak", unit: "MB", n: memoryRounds, got: m.peak.summary(), limit: limit{value: 100}},
		{name: "footprint, anonymous", unit: "MB", n: memoryRounds, got: m.anonymous.summary()},
	}, nil
}

type memorySamples struct{ rss, anonymous, peak samples }

// memoryIn starts the subject several times in a cluster of the shape and reads its memory when it has settled. The
// profile is taken after the last start.
func (e *environment) memoryIn(ctx context.Context, s shape, profile string) (memorySamples, error) {
	var out memorySamples
	if err := e.fill(ctx, s); err != nil {
		return out, err
	}
	for range memoryRounds {
		if err := e.restartSubject(ctx); err != nil {
			return out, err
		}
		m, err := e.settledMemory(ctx)
		if err != nil {
			return out, err
		}
		say("%v: %.0f MB (anonymous %.0f MB), peak %.0f MB", e.filled, m.rss, m.anonymous, m.peak)
		out.rss = append(out.rss, m.rss)
		out.anonymous = append(out.anonymous, m.anonymous)
		out.peak = append(out.peak, m.peak)
	}
	if err := e.profileHeap(ctx, profile); err != nil {
		return out, err
	}
	return out, e.awaitServed(ctx)
}

// The memory has settled when it has changed by less than settleShare for settleTime.
const (
	settleTime  = 10 * time.Second
	settleShare = 0.01
	settleLimit = 4 * time.Minute
)

// settle returns settleTime, or less if limits are not judged.
func (s settings) settle() time.Duration {
	if s.judged() {
		return settleTime
	}
	return settleTime / 10
}

// settledMemory waits until the memory that the start no longer needs has been released.
func (e *environment) settledMemory(ctx context.Context) (memory, error) {
	return e.settledMemoryOf(ctx, e.subjectMemory)
}

func (e *environment) settledMemoryOf(ctx context.Context, read func() (memory, error)) (memory, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, settleLimit, fmt.Errorf("the memory did not settle within %v", settleLimit))
	defer cancel()
	var m memory
	var failed error
	reference, since := math.NaN(), time.Now()
	err := poll(ctx, 500*time.Millisecond, func() bool {
		if m, failed = read(); failed != nil {
			return true
		}
		if !(math.Abs(m.rss-reference) <= settleShare*reference) {
			reference, since = m.rss, time.Now()
		}
		return time.Since(since) >= e.settle()
	})
	if failed != nil {
		return m, failed
	}
	return m, err
}
