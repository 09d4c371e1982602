// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"
)

const startupRounds = 7

// effort is the cost of reading the cluster once.
type effort struct {
	wall time.Duration
	cpu  time.Duration // of the process only, without kube-apiserver
}

type effortSamples struct{ wall, cpu samples }

func (s *effortSamples) add(e effort) {
	s.wall.addTime(e.wall, time.Second)
	s.cpu.addTime(e.cpu, time.Second)
}

func (s *effortSamples) last() string {
	return fmt.Sprintf("%.2f s (CPU %.2f s)", s.wall[len(s.wall)-1], s.cpu[len(s.cpu)-1])
}

// benchmarkStartup measures the time from the start of the server's process until it is ready, compared with a process
// that only lists the same objects.
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
		// The server must be idle while the floor is measured.
		e.server().Kill()
		ours.add(effort{took, cpu})
		for mode, floor := range floors { // in the random order of a map, for fairness
			took, err := e.runFloor(ctx, mode)
			if err != nil {
				return nil, err
			}
			floor.add(took)
		}
		say("ready after %v; only lists: plain %v, compressed %v, in pages %v",
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
  concurrently, without pages, in protobuf, uncompressed, with client-go, from the start of its process to its end. CPU is
  the CPU of the process only, and varies less than the time if other programs use the machine.`
	return []row{
		first,
		{name: "startup: CPU", unit: "s", n: startupRounds, got: ours.cpu.summary(), floor: floors[floorPlain].cpu.summary(), floorName: first.floorName},
		against("startup, floor with gzip", floorCompressed, "the same lists, compressed"),
		against("startup, floor in pages", floorPaged, "the same lists, pages of 500"),
	}, e.awaitServed(ctx)
}
