package soak

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/configdep/configdep/test/seeds"
)

// limit is how long anything may take on a machine that does other things meanwhile.
const limit = 5 * time.Minute

// TestHistory tries histories: always the same one, or with a duration as many as there is
// time for, beginning with any.
func TestHistory(t *testing.T) {
	asked, err := seeds.Read()
	if err != nil {
		t.Fatal(err)
	}
	end := time.Now().Add(asked.Duration)
	for n := asked.First; ; n++ {
		h := generate(n)
		fmt.Fprintf(os.Stderr, "seed %d; again: %s=%d go test ./test/soak\n", n, seeds.Variable, n)
		if !t.Run(strconv.FormatUint(n, 10), func(t *testing.T) { play(t, h) }) || !time.Now().Before(end) {
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
	t.Logf("again: %s=%d go test ./test/soak", seeds.Variable, s.history.seed)
}
