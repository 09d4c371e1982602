// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package seeds selects the seeds of property tests.
//
// By default, as in CI, a test runs with the same seeds each time: seeds that have failed before, and then 1 to n. So
// correct code cannot fail at random. Environment variables change that for all property tests:
//
//   - SEEDS_FACTOR=10 (make test-all) runs so many times as many of these seeds: 1 to 10n.
//   - SOAK_DURATION=30m (make soak) draws new seeds for that time. Tests of packages share it: each runs for a part
//     of it.
//   - SOAK_SEED=n is the first seed; without SOAK_DURATION, it is the only one.
//
// A failed test prints the command that repeats it. Add its seed to the arguments of Each, so that it is tested from
// then on.
package seeds

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

const (
	// Variable is the name of the environment variable with the first seed.
	Variable = "SOAK_SEED"

	durationVariable = "SOAK_DURATION"
	factorVariable   = "SEEDS_FACTOR"

	// parts is the number of parts into which tests of packages split the duration: there are about as many of these
	// tests, so that together they take about that time.
	parts = 20

	// most is the largest seed that is drawn. It is easy to copy, and fits into every type of a seed.
	most = 1_000_000_000
)

// Settings are the settings from environment variables.
type Settings struct {
	// First is the first seed. It is 1 by default.
	First uint64
	// Duration is how long to continue with the seeds after First; 0 without new seeds.
	Duration time.Duration
	// Given is true if the environment sets the first seed.
	Given bool
	// Factor is how many times as many seeds are to be tested as by default.
	Factor int
}

// Read returns the settings. With a duration but no seed, it draws the first one.
func Read() (Settings, error) { return read(os.Getenv) }

func read(getenv func(string) string) (s Settings, err error) {
	s.First, s.Factor = 1, 1
	if text := getenv(factorVariable); text != "" {
		if s.Factor, err = strconv.Atoi(text); err != nil || s.Factor < 1 {
			return s, fmt.Errorf("%s=%q is not a positive number", factorVariable, text)
		}
	}
	if text := getenv(durationVariable); text != "" {
		if s.Duration, err = time.ParseDuration(text); err != nil || s.Duration <= 0 {
			return s, fmt.Errorf("%s=%q is not a positive duration such as 30m", durationVariable, text)
		}
		s.First = 1 + rand.Uint64N(most)
	}
	if text := getenv(Variable); text != "" {
		if s.First, err = strconv.ParseUint(text, 10, 63); err != nil {
			return s, fmt.Errorf("%s=%q is not a seed, which is a number", Variable, text)
		}
		s.Given = true
	}
	return s, nil
}

// Each runs a test with the seeds that have failed before and then with n others (or n times SEEDS_FACTOR), each in a subtest
// that is named after the seed. It stops after the first failure. A test that takes all randomness from its seed fails again with that
// seed.
func Each(t *testing.T, n int, test func(*testing.T, uint64), failed ...uint64) {
	t.Helper()
	s, err := Read()
	if err != nil {
		t.Fatal(err)
	}
	end := time.Now().Add(s.Duration / parts)
	count := 0
	for seed := range s.all(n, failed, func() bool { return time.Now().Before(end) }) {
		count++
		if !run(t, seed, test) {
			t.Fatalf("seed %d failed, after %d others. Repeat it:\n\t%s\nOnce it is fixed, pass the seed to seeds.Each, so that it runs from then on.",
				seed, count-1, repeat(t, seed))
		}
	}
	if s.Duration > 0 {
		t.Logf("passed with %d seeds, starting at %d", count, s.First)
	}
}

// all returns the seeds of a test. With a duration, they continue while there is time left, and there is at least one.
func (s Settings) all(n int, failed []uint64, timeLeft func() bool) iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		switch {
		case s.Duration > 0:
			for seed := s.First; ; seed++ {
				if !yield(seed) || !timeLeft() {
					return
				}
			}
		case s.Given:
			yield(s.First)
		default:
			for _, seed := range failed {
				if !yield(seed) {
					return
				}
			}
			for seed := range uint64(n * s.Factor) {
				if !yield(seed + 1) {
					return
				}
			}
		}
	}
}

func run(t *testing.T, seed uint64, test func(*testing.T, uint64)) bool {
	t.Helper()
	return t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) { test(t, seed) })
}

// repeat returns the command that runs a test with one seed.
func repeat(t *testing.T, seed uint64) string {
	t.Helper()
	return fmt.Sprintf("%s=%d go test %s -run '^%s$'", Variable, seed, packagePath(), t.Name())
}

// packagePath returns the path of the package under test, whose folder is the working directory of its tests.
func packagePath() string {
	dir, err := os.Getwd()
	if err != nil {
		return "."
	}
	for root := dir; ; root = filepath.Dir(root) {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			path, _ := filepath.Rel(root, dir) // both are absolute
			return "./" + filepath.ToSlash(path)
		}
		if root == filepath.Dir(root) {
			return "."
		}
	}
}
