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
// The benchmarks of restarts and of memory can also measure another program. It is one process, finds the cluster by
// KUBECONFIG, has all permissions, and is killed at the end. Its limits are shown, not judged. Workloads opt in by the
// given annotations:
//
//	BENCH_SUBJECT=/usr/local/bin/reloader BENCH_ANNOTATIONS='reloader.stakater.com/auto=true' go run ./test/bench
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

// benchmark measures one aspect of the subject and returns its rows.
type benchmark struct {
	name   string // matched with BENCH_ONLY
	anyone bool   // it can also measure another program than the server
	run    func(context.Context, *environment) ([]row, error)
}

// benchmarks are run in this order. The first ones need no objects in the cluster; those after growth fill it, each with
// as many objects as the one before, or more.
var benchmarks = slices.Concat([]benchmark{
	{"latency", true, benchmarkLatency},
	{"fanout", true, benchmarkFanOut},
	{"unused", true, benchmarkUnused},
}, counts, []benchmark{
	{"releases", false, benchmarkReleases},
	{"growth", false, benchmarkGrowth},
	{"footprint", true, benchmarkFootprint},
	{"startup", false, benchmarkStartup},
	{"size", false, benchmarkSize},
	{"wave", false, benchmarkWave},
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
	only    *regexp.Regexp
	scale   float64           // factor of the numbers of objects
	binary  string            // the server; empty: built from this tree
	args    []string          // its flags
	command string            // another program to measure instead; empty: none
	optIn   map[string]string // the annotations by which workloads opt in for that program
}

// unlimited is the flag without which restarts would wait for rollouts, which no controller completes here.
const unlimited = "--max-rollouts-in-progress=unlimited"

func settingsOf(getenv func(string) string) (settings, error) {
	s := settings{scale: 1, binary: getenv("BENCH_BINARY"), command: getenv("BENCH_SUBJECT"), args: strings.Fields(cmp.Or(getenv("BENCH_ARGS"), unlimited))}
	var err error
	if s.only, err = regexp.Compile(getenv("BENCH_ONLY")); err != nil {
		return s, fmt.Errorf("BENCH_ONLY: %w", err)
	}
	if text := getenv("BENCH_SCALE"); text != "" {
		if s.scale, err = strconv.ParseFloat(text, 64); err != nil || s.scale <= 0 {
			return s, fmt.Errorf("BENCH_SCALE is %q, not a number above 0", text)
		}
	}
	if s.optIn, err = parseAnnotations(getenv("BENCH_ANNOTATIONS")); err != nil {
		return s, fmt.Errorf("BENCH_ANNOTATIONS: %w", err)
	}
	if s.command == "" && s.optIn != nil {
		return s, errors.New("BENCH_ANNOTATIONS is for BENCH_SUBJECT, which is empty")
	}
	return s, nil
}

// parseAnnotations parses a comma-separated list of key=value. A value may be empty but cannot contain a comma.
func parseAnnotations(text string) (map[string]string, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // no annotations
	}
	all := map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		key, value, found := strings.Cut(strings.TrimSpace(pair), "=")
		if !found || key == "" {
			return nil, fmt.Errorf("%q is not key=value", pair)
		}
		all[key] = value
	}
	return all, nil
}

// judged reports whether a missed limit is an error. It is not with few objects, because fixed costs dominate, nor for
// other programs, which we cannot fix.
func (s settings) judged() bool { return s.scale >= 1 && s.command == "" }

// selected reports whether a benchmark is to be run.
func (s settings) selected(b benchmark) bool {
	return s.only.MatchString(b.name) && (b.anyone || s.command == "")
}

// count scales a number of objects or changes.
func (s settings) count(n int) int { return max(1, int(math.Ceil(float64(n)*s.scale))) }
