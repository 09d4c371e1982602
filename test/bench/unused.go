// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

const (
	unusedUpdates = 4000
	unusedSources = 200
	unusedRounds  = 5
)

// benchmarkUnused measures the cost of changes of ConfigMaps that no workload uses, compared with the cost for a
// process that only watches them.
func benchmarkUnused(ctx context.Context, e *environment) ([]row, error) {
	return e.play(ctx, "unused", func(s *scene) ([]row, error) {
		name := func(i int) string { return fmt.Sprintf("unused-%d", i%unusedSources) }
		updates := e.count(unusedUpdates)
		round := func(r int) error {
			return inParallel(ctx, updates, func(ctx context.Context, i int) error {
				return s.put(ctx, s.configMap(name(i), strconv.Itoa(r*updates+i)+content(i, r, unusedBytes)))
			})
		}
		if err := round(0); err != nil { // creates the ConfigMaps
			return nil, err
		}
		if err := s.settled(ctx); err != nil {
			return nil, err
		}
		floor, end, err := e.startPatchFloor(ctx, s.namespace)
		if err != nil {
			return nil, err
		}
		defer end()
		var took, least samples
		calls := map[string]int{}
		for r := range unusedRounds {
			if err := e.idle(ctx); err != nil {
				return nil, err
			}
			since := time.Now()
			serverBefore, floorBefore, err := e.cpuOfBoth(floor)
			if err != nil {
				return nil, err
			}
			if err := round(r + 1); err != nil {
				return nil, err
			}
			// Requests that still follow are counted. After that, the canary, which causes requests too, shows
			// that the server has received all updates.
			if err := e.idle(ctx); err != nil {
				return nil, err
			}
			until := time.Now()
			if err := s.heard(ctx); err != nil {
				return nil, err
			}
			serverAfter, floorAfter, err := e.cpuOfBoth(floor)
			if err != nil {
				return nil, err
			}
			took.addTime(serverAfter-serverBefore, time.Second)
			least.addTime(floorAfter-floorBefore, time.Second)
			some, err := e.calls(since, until)
			if err != nil {
				return nil, err
			}
			for what, n := range some {
				calls[what] += n
			}
			say("%d updates: CPU %.2f s, of only a watch %.2f s; API calls %v", updates, took[r], least[r], some)
		}
		return []row{
			{
				name: "unused ConfigMaps change: CPU", unit: "s", n: unusedRounds, got: took.summary(),
				floor: least.summary(), floorName: "a watch that drops them", limit: limit{ratio: 1.2},
				note: fmt.Sprintf("%d updates of ConfigMaps of %d bytes.", updates, unusedBytes),
			},
			{
				name: "unused ConfigMaps change: API calls", n: unusedRounds, got: exactly(float64(total(calls))), limit: limit{exact: true},
				note: fmt.Sprintf("of all rounds, by the audit log of the API server, without watches, leases, and\n  authentication and authorization of callers: %v", calls),
			},
		}, nil
	})
}

// unusedBytes is the size of the ConfigMaps.
const unusedBytes = 1 << 10

func (e *environment) cpuOfBoth(floor int) (ofServer, ofFloor time.Duration, err error) {
	if ofServer, err = cpuTime(e.server().PID()); err != nil {
		return 0, 0, err
	}
	ofFloor, err = cpuTime(floor)
	return ofServer, ofFloor, err
}

func total(calls map[string]int) (sum int) {
	for _, n := range calls {
		sum += n
	}
	return sum
}
