// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// The command bench measures what the documents promise of the server, in a real control plane. It compares each result
// with a floor that is measured in the same run: a process that patches workloads without any decision, or a plain
// client that does similar work.
//
// It prints one table at the end, and exits with an error if a limit is missed by far. Absolute numbers depend on the
// machine and its load. So most limits apply to ratios, the two sides are measured in turns, and medians are compared.
// Some rows count rollouts; their limits are exact and apply to any machine.
//
//	go run ./test/bench                     # all benchmarks, which takes long
//	BENCH_ONLY='latency|fanout' go run ./test/bench
//	BENCH_SCALE=0.05 go run ./test/bench    # a twentieth of the objects; limits are shown, not judged
//	BENCH_BINARY=path go run ./test/bench   # measures another build of the server
//	BENCH_ARGS='--settle=0s' go run ./test/bench   # gives the server these flags, and not those of unlimited
//
// To add a row, write a benchmark in its own file and add it to benchmarks.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// benchmark measures one aspect of the server and returns its rows.
type benchmark struct {
	name string // matched with BENCH_ONLY
	run  func(context.Context, *environment) ([]row, error)
}

// benchmarks are run in this order. The first ones need no objects in the cluster; those after growth fill it, each with
// as many objects as the one before, or more.
var benchmarks = slices.Concat([]benchmark{
	{"latency", benchmarkLatency},
	{"fanout", benchmarkFanOut},
	{"unused", benchmarkUnused},
}, counts, []benchmark{
	{"releases", benchmarkReleases},
	{"growth", benchmarkGrowth},
	{"footprint", benchmarkFootprint},
	{"startup", benchmarkStartup},
	{"size", benchmarkSize},
	{"wave", benchmarkWave},
})

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	do := run
	switch {
	case len(os.Args) == 2 && os.Args[1] == listCommand:
		do = listEverything
	case len(os.Args) == 3 && os.Args[1] == patchCommand:
		do = func(ctx context.Context) error { return patchAtOnce(ctx, os.Args[2]) }
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

// settings are read from environment variables.
type settings struct {
	only   *regexp.Regexp
	scale  float64  // factor of the numbers of objects
	binary string   // the server; empty: built from this tree
	args   []string // its flags
}

// unlimited is the flag without which restarts would wait for rollouts, which no controller completes here.
const unlimited = "--max-rollouts-in-progress=unlimited"

func settingsOf(getenv func(string) string) (settings, error) {
	s := settings{scale: 1, binary: getenv("BENCH_BINARY"), args: strings.Fields(cmp.Or(getenv("BENCH_ARGS"), unlimited))}
	var err error
	if s.only, err = regexp.Compile(getenv("BENCH_ONLY")); err != nil {
		return s, fmt.Errorf("BENCH_ONLY: %w", err)
	}
	if text := getenv("BENCH_SCALE"); text != "" {
		if s.scale, err = strconv.ParseFloat(text, 64); err != nil || s.scale <= 0 {
			return s, fmt.Errorf("BENCH_SCALE is %q, not a number above 0", text)
		}
	}
	return s, nil
}

// judged reports whether a missed limit is an error. It is not with few objects, because fixed costs dominate.
func (s settings) judged() bool { return s.scale >= 1 }

// selected reports whether a benchmark is to be run.
func (s settings) selected(b benchmark) bool {
	return s.only.MatchString(b.name)
}

// count scales a number of objects or changes.
func (s settings) count(n int) int { return max(1, int(math.Ceil(float64(n)*s.scale))) }
