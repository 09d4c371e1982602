// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/configdep/configdep/test/seeds"
)

// limit is how long anything may take on a busy machine.
const limit = time.Minute

// TestHistory plays histories: always the same one or, with a duration, as many as possible, starting with any.
func TestHistory(t *testing.T) {
	asked, err := seeds.Read()
	if err != nil {
		t.Fatal(err)
	}
	end := time.Now().Add(asked.Duration)
	for seed := asked.First; ; seed++ {
		again := fmt.Sprintf("%s=%d go test ./test/extended/soak", seeds.Variable, seed)
		fmt.Fprintf(os.Stderr, "again: %s\n", again)
		if !t.Run(fmt.Sprint(seed), func(t *testing.T) { play(t, generate(seed), again) }) || !time.Now().Before(end) {
			return
		}
	}
}

// play plays a history.
func play(t *testing.T, h *history, again string) {
	t.Helper()
	ctx := t.Context()
	s, err := newStage(ctx, h)
	if err != nil {
		t.Fatal(err)
	}
	defer s.report(t, again)
	if err := s.begin(ctx); err != nil {
		t.Error(err)
		return
	}
	defer s.end(t)
	ctx, cancel := context.WithCancel(ctx)
	var claims errgroup.Group
	defer func() { cancel(); _ = claims.Wait() }()
	for i := range server.Replicas {
		claims.Go(func() error { return s.watchClaims(ctx, i) })
	}
	for i, p := range h.phases {
		began := time.Now()
		s.logf("phase %d, %s", i, p.kind)
		if err := s.play(ctx, i, p); err != nil {
			t.Errorf("phase %d (%s): %v", i, p.kind, err)
			return
		}
		if done := time.Since(began).Round(time.Millisecond); testing.Verbose() {
			fmt.Fprintf(os.Stderr, "phase %d (%s %v): %v; %+v\n", i, p.kind, p.disruptions, done, s.journal.tally())
		}
	}
}

// report prints the events in the cells where something is wrong.
func (s *stage) report(t *testing.T, again string) {
	t.Helper()
	s.journal.mu.Lock()
	defer s.journal.mu.Unlock()
	for _, v := range s.oracle.violations {
		t.Error(v)
	}
	var faults []string
	for _, p := range proxies {
		faults = append(faults, fmt.Sprint(p.tally()))
	}
	t.Logf("%+v; faults %s", s.oracle.tally, strings.Join(faults, ", "))
	if !t.Failed() {
		return
	}
	s.mu.Lock()
	t.Log(strings.Join(s.log, "\n"))
	s.mu.Unlock()
	s.oracle.each(func(w *workload) {
		if w.wrong || w.late {
			t.Logf("%s/%s, a %s:\n%s", w.cell.namespace, w.name, w.kind, strings.Join(w.trace, "\n"))
		}
	})
	t.Log("again: " + again)
}
