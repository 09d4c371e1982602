package simulation

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

const (
	defaultCount = 2500 // histories
	maxFailures  = 3    // of which are told
)

// outcome is what came of a history.
type outcome struct {
	violation string
	trace     []string
	tally     tally
	requests  int
}

// run runs a history in a bubble of its own.
func run(t *testing.T, h *history, traced bool) (out outcome) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		var trace *[]string
		if traced {
			trace = &out.trace
		}
		s := newSimulation(h, trace)
		defer s.end()
		o := s.world.oracle
		for i, operation := range h.operations {
			s.world.logf("%d: %v", i, operation)
			if !actions[operation.do].run(s, operation) {
				s.world.logf("    (not possible)")
			}
			s.drain()
			if o.violation != "" {
				break
			}
		}
		if o.violation == "" {
			s.world.logf("the end")
			s.calm()
			o.checkCalm()
			before := s.network.count
			s.sleep(time.Hour)
			if after := s.network.count; o.violation == "" && after != before {
				o.fail("%d requests in an hour in which nothing happened", after-before)
			}
		}
		out.violation, out.tally, out.requests = o.violation, o.tally, s.network.count
	})
	return out
}

func TestHistories(t *testing.T) {
	if n, given := number(t, "SIMULATION_SEED"); given {
		h := generate(n)
		if out := run(t, h, true); out.violation == "" {
			t.Logf("%v%s\n%+v", h, strings.Join(out.trace, "\n"), out.tally)
			return
		}
		report(t, h)
		return
	}
	count := defaultCount
	if n, given := number(t, "SIMULATION_COUNT"); given {
		count = int(n)
	}
	first, _ := number(t, "SIMULATION_FIRST")
	const shards = 4
	begin := time.Now()
	var failed atomic.Int32
	var mu sync.Mutex
	var sum tally
	requests := 0
	t.Run("all", func(t *testing.T) {
		for shard := range shards {
			t.Run(fmt.Sprint("shard", shard), func(t *testing.T) {
				t.Parallel()
				for n := shard; n < count && failed.Load() < maxFailures; n += shards {
					h := generate(first + uint64(n))
					out := run(t, h, false)
					mu.Lock()
					sum.add(out.tally)
					requests += out.requests
					mu.Unlock()
					if out.violation != "" {
						failed.Add(1)
						report(t, h)
					}
				}
			})
		}
	})
	took := time.Since(begin)
	if count >= defaultCount && failed.Load() == 0 {
		sum.check(t, count)
	}
	t.Logf("%d histories from seed %d in %v, %.0f per second: %d requests, %+v", count, first, took.Round(time.Millisecond), float64(count)/took.Seconds(), requests, sum)
}

// number reads a variable of the environment.
func number(t *testing.T, name string) (n uint64, given bool) {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return 0, false
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n, true
}

// report makes a history that fails short and tells of it.
func report(t *testing.T, h *history) {
	t.Helper()
	shrink(t, h)
	out := run(t, h, true)
	t.Errorf("seed %d: %s\nTo see it again: SIMULATION_SEED=%d go test ./test/simulation -run TestHistories\n%v%s",
		h.seed, out.violation, h.seed, h, strings.Join(out.trace, "\n"))
}

// shrink leaves operations out of a history as long as it fails.
func shrink(t *testing.T, h *history) {
	t.Helper()
	fails := func(operations []operation) bool {
		candidate := *h
		candidate.operations = operations
		return run(t, &candidate, false).violation != ""
	}
	for size := len(h.operations) / 2; size > 0; {
		removed := false
		for at := 0; at+size <= len(h.operations); {
			without := slices.Delete(slices.Clone(h.operations), at, at+size)
			if fails(without) {
				h.operations, removed = without, true
			} else {
				at += size
			}
		}
		if !removed || size > 1 && size > len(h.operations) {
			size /= 2
		}
	}
}

// check tells when too little has happened in so many histories to prove anything, or when
// too much was let pass.
func (t *tally) check(test *testing.T, histories int) {
	test.Helper()
	for what, least := range map[string]struct{ got, want int }{
		"restarts":                     {t.restarts, histories / 4},
		"baselines":                    {t.baselines, histories},
		"conflicts":                    {t.conflicts, histories / 8},
		"requests that failed":         {t.failures, histories / 8},
		"look-ups of what came first":  {t.reads, histories / 400},
		"restarts that had to be":      {t.restarts - t.ambiguous - t.optional, histories / 4},
		"restarts for a bad reason, -": {-t.ambiguous, -t.restarts / 10},
	} {
		if least.got < least.want {
			test.Errorf("%d %s, want at least %d", least.got, what, least.want)
		}
	}
}

func (t *tally) add(o tally) {
	t.restarts += o.restarts
	t.baselines += o.baselines
	t.conflicts += o.conflicts
	t.reads += o.reads
	t.failures += o.failures
	t.ambiguous += o.ambiguous
	t.optional += o.optional
	t.unknowable += o.unknowable
	t.rollbacks += o.rollbacks
	t.fights += o.fights
}
