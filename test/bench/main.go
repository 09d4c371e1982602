// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// The command bench measures the server in a real control plane and compares each result with a floor that is
// measured in the same run: similar work, done by kube-apiserver, by a plain client, or by a process that patches
// workloads without any decision.
//
// It prints one table at the end, and exits with an error if a limit is missed by far. Absolute numbers depend on the
// machine and its load. So most limits apply to ratios, the two sides are measured in turns, and medians are compared.
// Some rows count rollouts; their limits are exact and apply to any machine.
//
//	go run ./test/bench                     # all benchmarks, which takes long
//	BENCH_ONLY='list|get' go run ./test/bench
//	BENCH_SCALE=0.05 go run ./test/bench    # a twentieth of the objects; limits are shown, not judged
//	BENCH_PROFILE=dir go run ./test/bench   # writes profiles of the server to dir
//	BENCH_BINARY=path go run ./test/bench   # measures another build of the server
//	BENCH_DIALECT=reloader go run ./test/bench # workloads opt in by annotations of Stakater Reloader
//
// The benchmarks of restarts and of memory can also measure another program. It is started by /bin/sh, finds the
// cluster by KUBECONFIG, has all permissions, and is killed at the end. Its limits are shown, not judged. Workloads opt
// in by the given annotations:
//
//	BENCH_SUBJECT=/usr/local/bin/reloader BENCH_ANNOTATIONS='reloader.stakater.com/auto=true' go run ./test/bench
//
// To add a row, write a benchmark in its own file and add it to benchmarks.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	do := run
	if len(os.Args) == 3 {
		switch os.Args[1] {
		case floorCommand:
			do = func(ctx context.Context) error { return listEverything(ctx, os.Args[2]) }
		case patchCommand:
			do = func(ctx context.Context) error { return patchAtOnce(ctx, os.Args[2]) }
		}
	}
	if err := do(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	s, err := settingsOf(os.Getenv)
	if err != nil {
		return err
	}
	started := time.Now()
	e, err := newEnvironment(ctx, s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.close()) }()

	var rows []row
	// The results so far are shown even if a later benchmark fails.
	defer func() { printTable(os.Stdout, rows, s) }()
	for _, b := range benchmarks {
		if !s.selected(b) {
			continue
		}
		say("%s", b.name)
		measured, err := b.run(ctx, e)
		rows = append(rows, measured...)
		if err != nil {
			return fmt.Errorf("%s: %w", b.name, err)
		}
	}
	say("done in %v", time.Since(started).Round(time.Second))
	return judge(rows, s)
}

func say(format string, args ...any) { fmt.Fprintf(os.Stderr, "bench: "+format+"\n", args...) }
