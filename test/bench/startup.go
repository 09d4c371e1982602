// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"
)

const startupRounds = 7

// effort is what it takes to read the cluster once.
type effort struct {
	wall time.Duration
	cpu  time.Duration // of the process alone, not of kube-apiserver
}

type effortSamples struct{ wall, cpu samples }

func (s *effortSamples) add(e effort) {
	s.wall.addTime(e.wall, time.Second)
	s.cpu.addTime(e.cpu, time.Second)
}

func (s *effortSamples) last() string {
	return fmt.Sprintf("%.2f s (CPU %.2f s)", s.wall[len(s.wall)-1], s.cpu[len(s.cpu)-1])
}

// benchmarkStartup measures how long the server takes from the start of its process to
// being ready, and how long a process takes that only lists the same.
func benchmarkStartup(ctx context.Context, e *environment) ([]row, error) {
	if err := e.fill(ctx, standard); err != nil {
		return nil, err
	}
	var ours effortSamples
	floors := map[string]*effortSamples{floorPlain: {}, floorCompressed: {}, floorPaged: {}}
	for range startupRounds {
		took, err := e.restart(ctx)
		if err != nil {
			return nil, err
		}
		cpu, err := cpuTime(e.server().PID())
		if err != nil {
			return nil, err
		}
		// While the floor is measured, the server must not compute.
		e.server().Kill()
		ours.add(effort{took, cpu})
		for mode, floor := range floors { // in random order, which is fair
			took, err := e.runFloor(ctx, mode)
			if err != nil {
				return nil, err
			}
			floor.add(took)
		}
		say("ready after %v; lists alone: plain %v, compressed %v, in pages %v",
			ours.last(), floors[floorPlain].last(), floors[floorCompressed].last(), floors[floorPaged].last())
	}
	if _, err := e.restart(ctx); err != nil {
		return nil, err
	}
	against := func(name, mode, of string) row {
		return row{name: name, unit: "s", n: startupRounds, got: ours.wall.summary(), floor: floors[mode].wall.summary(), floorName: of}
	}
	first := against("startup", floorPlain, "concurrent full lists, a process of its own")
	first.limit = limit{ratio: 1.5}
	first.note = "from the start of the process to ready, with " + e.filled.String() + `. The floor lists the same ten resources
  at once, unpaged, in protobuf, uncompressed, with client-go, from the start of its process to its end. CPU is that of the
  process alone, and moves less when others use the machine.`
	return []row{
		first,
		{name: "startup: CPU", unit: "s", n: startupRounds, got: ours.cpu.summary(), floor: floors[floorPlain].cpu.summary(), floorName: first.floorName},
		against("startup, floor with gzip", floorCompressed, "the same lists, compressed"),
		against("startup, floor in pages", floorPaged, "the same lists, pages of 500"),
	}, e.awaitServed(ctx)
}
