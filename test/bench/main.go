// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// The command bench measures the server in a real control plane and compares what it
// measures with a floor that is measured in the same run: the same work, done by
// kube-apiserver, by a plain client, or by a process that patches what it is told to and
// decides nothing.
//
// It prints one table at the end, and ends with an error when a limit is missed by far.
// Numbers of one machine at one hour tell little, as others may be at work on it, so
// limits are on ratios, the two sides take turns, and medians are compared. Some rows
// count rollouts: these must be met, whatever the machine.
//
//	go run ./test/bench                     # everything, which takes long
//	BENCH_ONLY='list|get' go run ./test/bench
//	BENCH_SCALE=0.05 go run ./test/bench    # a twentieth of the objects; limits are shown, not judged
//	BENCH_PROFILE=dir go run ./test/bench   # writes profiles of the server to dir
//	BENCH_BINARY=path go run ./test/bench   # measures another build of the server
//
// Another program can take the server's place where workloads are restarted, and for the
// memory. It is started by /bin/sh, finds the cluster by KUBECONFIG, may do everything in
// it, and is killed in the end. Its limits are shown, not judged. The annotations opt
// workloads in:
//
//	BENCH_SUBJECT=/usr/local/bin/reloader BENCH_ANNOTATIONS='reloader.stakater.com/auto=true' go run ./test/bench
//
// To add a row, write a benchmark in a file of its own and name it in benchmarks.
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
	// What has been measured is shown even if something fails later.
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
