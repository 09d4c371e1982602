// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
)

// The time from a change to the patch is measured many times, in alternating turns.
const (
	latencyWorkloads = 50 // so that none is changed twice in a turn (see aged)
	latencyTurns     = 8
	latencyPerTurn   = 50
	// breath is the pause between two changes, so that requests that follow a restart, such as those for events,
	// do not delay the next.
	breath = 20 * time.Millisecond
)

// quantiles are the quantiles of latencies that have rows.
var quantiles = []struct {
	name  string
	share float64
}{{"p50", 0.5}, {"p99", 0.99}}

// benchmarkLatency measures the time from a change of a ConfigMap until the only workload that uses it is patched.
func benchmarkLatency(ctx context.Context, e *environment) ([]row, error) {
	return e.playBeside(ctx, "latency", func(s, floor *scene) error {
		return inParallel(ctx, latencyWorkloads, func(ctx context.Context, i int) error {
			return errors.Join(
				s.put(ctx, s.configMap(appName(i), "0"), s.deployment(appName(i), reads(appName(i), ""), true)),
				floor.put(ctx, s.configMap(appName(i), "0"), labelled(bystander(appName(i), reads(appName(i), "")), appName(i))),
			)
		})
	}, func(s, floor *scene) ([]row, error) {
		changes := 0
		turn := func(side *scene, into *samples) error {
			for range e.count(latencyPerTurn) {
				changes++
				of := appName(changes % latencyWorkloads)
				took, err := side.follow(ctx, of, func() error { return side.put(ctx, s.configMap(of, strconv.Itoa(changes))) })
				if err != nil {
					return err
				}
				into.addTime(took, time.Millisecond)
				<-time.After(breath)
			}
			return nil
		}
		if err := e.takeTurns(ctx, s, 1, func() error { return turn(s, &samples{}) }, func() error { return turn(floor, &samples{}) }); err != nil {
			return nil, err
		}
		var took, least samples
		err := e.takeTurns(ctx, s, latencyTurns, func() error { return turn(s, &took) }, func() error { return turn(floor, &least) })
		if err != nil {
			return nil, err
		}
		var rows []row
		for _, q := range quantiles {
			r := row{
				name: "change to patch " + q.name, unit: "ms", n: len(took), got: exactly(took.quantile(q.share)),
				floor: exactly(least.quantile(q.share)), floorName: atOnce, limit: limit{ratio: 1.1},
			}
			say("%s: %v ms, floor %v ms", r.name, r.got, r.floor)
			rows = append(rows, r)
		}
		rows[0].note = `from before the update of a ConfigMap is sent until this program's watch shows the patched template; settle 0.
  The floor is a separate process that sends the same requests immediately. The server is paused while it is measured.`
		return rows, nil
	})
}

// Parameters of benchmarkFanOut, in which many workloads use one Secret.
const (
	fanOutWorkloads = 500
	fanOutRounds    = 7
	fanOutTime      = 3 * time.Minute // no round starts later
)

// benchmarkFanOut measures the time from a change of a Secret until the last of its many workloads is patched.
func benchmarkFanOut(ctx context.Context, e *environment) ([]row, error) {
	const source = "shared"
	workloads := e.count(fanOutWorkloads)
	return e.playBeside(ctx, "fanout", func(s, floor *scene) error {
		if err := errors.Join(s.put(ctx, s.secret(source, "0")), floor.put(ctx, s.secret(source, "0"))); err != nil {
			return err
		}
		return inParallel(ctx, workloads, func(ctx context.Context, i int) error {
			return errors.Join(
				s.put(ctx, s.deployment(appName(i), reads("", source), true)),
				floor.put(ctx, labelled(bystander(appName(i), reads("", source)), source)),
			)
		})
	}, func(s, floor *scene) ([]row, error) {
		changes := 0
		var took, least samples
		round := func(side *scene, into *samples) error {
			changes++
			one, err := side.followAll(ctx, workloads, appName, func() error { return side.put(ctx, s.secret(source, strconv.Itoa(changes))) })
			into.addTime(one, time.Second)
			return err
		}
		began := time.Now()
		for len(took) < fanOutRounds && time.Since(began) < fanOutTime {
			err := e.takeTurns(ctx, s, 1, func() error { return round(s, &took) }, func() error { return round(floor, &least) })
			if err != nil {
				return nil, err
			}
			say("%d workloads: the last one after %.2f s, floor %.2f s", workloads, took[len(took)-1], least[len(least)-1])
		}
		return []row{
			{
				name: "one Secret, many Deployments", unit: "s", n: len(took), got: took.summary(),
				floor: least.summary(), floorName: atOnce, limit: limit{ratio: 1.1},
				note: fmt.Sprintf("until the last of %d is patched; the floor sends %d patches at a time.", workloads, floorPatches),
			},
		}, nil
	})
}

const atOnce = "the same requests, no decision"

// playBeside is play with a second namespace for the floor. The function prepare fills both; the floor runs when act
// starts.
func (e *environment) playBeside(ctx context.Context, name string, prepare func(s, floor *scene) error, act func(s, floor *scene) ([]row, error)) ([]row, error) {
	return e.play(ctx, name, func(s *scene) (rows []row, err error) {
		floor, err := e.newScene(ctx, name+"-floor")
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, floor.end(ctx)) }()
		if err := prepare(s, floor); err != nil {
			return nil, err
		}
		if err := s.settled(ctx); err != nil {
			return nil, err
		}
		_, stop, err := e.startPatchFloor(ctx, floor.namespace)
		if err != nil {
			return nil, err
		}
		defer stop()
		return act(s, floor)
	})
}

// takeTurns measures the floor and the server in turns. The server is paused while the floor is measured, and has
// caught up before its own turn.
func (e *environment) takeTurns(ctx context.Context, s *scene, turns int, server, floor func() error) error {
	for range turns {
		resume, err := e.pause()
		if err != nil {
			return err
		}
		err = floor()
		resume()
		if err != nil {
			return fmt.Errorf("the floor: %w", err)
		}
		if err := s.heard(ctx); err != nil {
			return err
		}
		if err := errors.Join(e.idle(ctx), s.aged(ctx)); err != nil {
			return err
		}
		if err := server(); err != nil {
			return err
		}
	}
	return nil
}

// labelled adds the label by which the floor patches a Deployment when a source changes.
func labelled(d *appsv1.Deployment, source string) *appsv1.Deployment {
	d.Labels = map[string]string{sourceLabel: source}
	return d
}

// follow makes a change and returns the time until the template of a Deployment has changed.
func (s *scene) follow(ctx context.Context, name string, change func() error) (time.Duration, error) {
	return s.followAll(ctx, 1, func(int) string { return name }, change)
}

// followAll makes a change and returns the time until the last template has changed.
func (s *scene) followAll(ctx context.Context, n int, name func(int) string, change func() error) (took time.Duration, err error) {
	limit := restartLimit + time.Duration(n)*time.Second
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errNoRestart)
	defer cancel()
	before := make([]int, n)
	for i := range n {
		before[i], _, _, _ = s.of(name(i))
	}
	s.controllers.held.Lock()
	defer func() {
		s.controllers.held.Unlock()
		err = errors.Join(err, s.complete(ctx))
	}()
	started := time.Now()
	if err := change(); err != nil {
		return 0, err
	}
	var last time.Time
	for i := range n {
		at, err := s.await(ctx, name(i), before[i]+1)
		if err != nil {
			return 0, err
		}
		if at.After(last) {
			last = at
		}
	}
	return last.Sub(started), nil
}
