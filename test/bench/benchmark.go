// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// benchmark measures one aspect of the subject and returns its rows.
type benchmark struct {
	name   string // matched with BENCH_ONLY
	anyone bool   // it can also measure another program than the server
	run    func(context.Context, *environment) ([]row, error)
}

// benchmarks are run in this order. The first ones need no objects in the cluster; the others fill it with the objects
// that they need, which is quick if the benchmark before needed the same.
var benchmarks = []benchmark{
	{"latency", true, benchmarkLatency},
	{"fanout", true, benchmarkFanOut},
	{"unused", true, benchmarkUnused},
	{"downtime", true, benchmarkDowntime},
	{"recreated", true, benchmarkRecreated},
	{"optin", true, benchmarkOptIn},
	{"pairs", true, benchmarkPairs},
	{"unread", true, benchmarkUnread},
	{"rewrite", true, benchmarkRewrite},
	{"releases", false, benchmarkReleases},
	{"admission", false, benchmarkAdmission},
	{"dialects", false, benchmarkDialects},
	{"watchlatency", false, benchmarkWatchLatency},
	{"watchers", false, benchmarkWatchers},
	{"idlewatches", false, benchmarkIdleWatches},
	{"watchlist", false, benchmarkWatchList},
	{"list", false, benchmarkList},
	{"get", false, benchmarkGet},
	{"helmreleases", false, benchmarkHelmReleases},
	{"kinds", false, benchmarkKinds},
	{"agent", false, benchmarkAgent},
	{"startup", false, benchmarkStartup},
	{"memory", false, benchmarkMemory},
	{"footprint", true, benchmarkFootprint},
	{"growth", false, benchmarkGrowth},
	{"size", false, benchmarkSize},
}

// settings are read from environment variables.
type settings struct {
	only    *regexp.Regexp
	scale   float64           // factor of the numbers of objects
	profile string            // a folder for profiles of the server; empty: none
	binary  string            // the server; empty: built from this tree
	command string            // another program to measure instead; empty: none
	optIn   map[string]string // the annotations by which workloads opt in for that program
	dialect string            // otherwise, the name of their dialect
}

func settingsOf(getenv func(string) string) (settings, error) {
	s := settings{scale: 1, profile: getenv("BENCH_PROFILE"), binary: getenv("BENCH_BINARY"), command: getenv("BENCH_SUBJECT")}
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
	if s.dialect, err = parseDialect(getenv("BENCH_DIALECT")); err != nil {
		return s, fmt.Errorf("BENCH_DIALECT: %w", err)
	}
	if s.command != "" && getenv("BENCH_DIALECT") != "" {
		return s, errors.New("BENCH_DIALECT is not for BENCH_SUBJECT, which has BENCH_ANNOTATIONS")
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
