package main

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
)

// A benchmark measures one thing and returns its rows.
type benchmark struct {
	name string // BENCH_ONLY selects by it
	run  func(context.Context, *environment) ([]row, error)
}

// benchmarks are run in this order. Each fills the cluster with what it needs, which is
// quick when the one before needed the same.
var benchmarks = []benchmark{
	{"list", benchmarkList},
	{"get", benchmarkGet},
	{"startup", benchmarkStartup},
	{"memory", benchmarkMemory},
	{"footprint", benchmarkFootprint},
}

// settings come from the environment.
type settings struct {
	only    *regexp.Regexp
	scale   float64 // of the numbers of objects
	profile string  // a folder for profiles of the server; empty: none
	binary  string  // the server; empty: built from this tree
}

func settingsOf(getenv func(string) string) (settings, error) {
	s := settings{scale: 1, profile: getenv("BENCH_PROFILE"), binary: getenv("BENCH_BINARY")}
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

// judged tells whether limits count. With few objects, fixed costs hide the rest.
func (s settings) judged() bool { return s.scale >= 1 }
