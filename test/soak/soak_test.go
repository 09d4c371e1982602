package soak

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// limit is how long anything may take on a machine that does other things meanwhile.
const limit = 5 * time.Minute

const (
	seedVariable     = "SOAK_SEED"
	durationVariable = "SOAK_DURATION"
)

// TestHistory tries histories: always the same one, or with a duration as many as there is
// time for, beginning with any.
func TestHistory(t *testing.T) {
	seed := uint64(1)
	var duration time.Duration
	if text := os.Getenv(durationVariable); text != "" {
		var err error
		if duration, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
		seed = rand.Uint64N(1e6)
	}
	if text := os.Getenv(seedVariable); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	for end := time.Now().Add(duration); ; seed++ {
		h := generate(seed)
		fmt.Fprintf(os.Stderr, "seed %d; again: %s=%d go test ./test/soak\n", seed, seedVariable, seed)
		if !t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) { play(t, h) }) || !time.Now().Before(end) {
			return
		}
	}
}

// play plays a history.
func play(t *testing.T, h *history) {
	t.Helper()
	ctx := t.Context()
	s, err := newStage(ctx, h)
	if err != nil {
		t.Fatal(err)
	}
	defer s.report(t)
	if err := s.begin(ctx); err != nil {
		t.Error(err)
		return
	}
	defer s.end(t)
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

// report tells what has happened in the cells where something is wrong.
func (s *stage) report(t *testing.T) {
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
	t.Logf("again: %s=%d go test ./test/soak", seedVariable, s.history.seed)
}
