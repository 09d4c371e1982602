// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/configdep/configdep/test/seeds"
)

const (
	defaultCount = 500 // histories, times SEEDS_FACTOR
	maxFailures  = 3   // the test ends after this number of failures, unless SIMULATION_FAILURES is set
)

// outcome is the result of a history.
type outcome struct {
	violation string
	trace     []string
	tally     tally
	requests  int
}

// run runs a history in its own bubble.
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
		for i, operation := range h.Operations {
			s.world.logf("%d: %v", i, operation)
			s.answers = 0
			if !actions[operation.Do].run(s, operation) {
				s.world.logf("    (not possible)")
			}
			s.drain()
			o.check(false)
			if o.violation != "" {
				break
			}
		}
		if o.violation == "" {
			s.world.logf("the end")
			s.calm()
			o.check(true)
			s.lastHour()
		}
		out.violation, out.tally, out.requests = o.violation, o.tally, s.network.count
	})
	return out
}

// The index logs that revisions have decreased, which happens in some histories.
func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	m.Run()
}

func TestHistories(t *testing.T) {
	if n, given := number(t, "SIMULATION_SEED"); given {
		h := generate(n)
		out := run(t, h, true)
		if out.violation == "" {
			t.Logf("%v%s\n%v", h, strings.Join(out.trace, "\n"), out.tally)
			return
		}
		report(t, h, out.violation)
		return
	}
	settings, err := seeds.Read()
	if err != nil {
		t.Fatal(err)
	}
	count := defaultCount * settings.Factor
	if n, given := number(t, "SIMULATION_COUNT"); given {
		count = int(n)
	}
	first, _ := number(t, "SIMULATION_FIRST")
	most := int32(maxFailures)
	if n, given := number(t, "SIMULATION_FAILURES"); given {
		most = int32(n)
	}
	const shards = 4
	begin := time.Now()
	var failed atomic.Int32
	var mu sync.Mutex
	sum := tally{}
	requests := 0
	t.Run("all", func(t *testing.T) {
		for shard := range shards {
			t.Run(fmt.Sprint("shard", shard), func(t *testing.T) {
				t.Parallel()
				for n := shard; n < count && failed.Load() < most; n += shards {
					h := generate(first + uint64(n))
					out := run(t, h, false)
					mu.Lock()
					sum.add(out.tally)
					requests += out.requests
					mu.Unlock()
					if out.violation != "" {
						failed.Add(1)
						report(t, h, out.violation)
					}
				}
			})
		}
	})
	took := time.Since(begin)
	if count >= defaultCount && failed.Load() == 0 {
		sum.check(t, count)
	}
	t.Logf("%d histories from seed %d in %v, %.0f per second: %d requests", count, first, took.Round(time.Millisecond), float64(count)/took.Seconds(), requests)
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

// report shrinks a history that fails, and reports it.
func report(t *testing.T, h *history, violation string) {
	t.Helper()
	if again := run(t, h, false).violation; again != violation {
		t.Errorf("seed %d: %s\nThe replay ends differently: %q", h.Seed, violation, again)
		return
	}
	shrink(t, h)
	out := run(t, h, true)
	kept, err := json.Marshal(h)
	if err != nil {
		t.Error(err)
	}
	t.Errorf("seed %d: %s\nTo see it again: SIMULATION_SEED=%d go test ./test/simulation -run TestHistories\n"+
		"To keep it: a file in test/simulation/testdata with\n%s\n%v%s",
		h.Seed, out.violation, h.Seed, kept, h, strings.Join(out.trace, "\n"))
}

// wording returns a violation without names and numbers.
func wording(violation string) string {
	text := regexp.MustCompile(`[a-z]?[0-9]+(\.[abc])?|\{[^}]*\}`).ReplaceAllString(violation, "")
	return text[:min(len(text), 60)]
}

// shrink removes operations from a history as long as it fails in the same way.
func shrink(t *testing.T, h *history) {
	t.Helper()
	was := wording(run(t, h, false).violation)
	fails := func(operations []operation) bool {
		candidate := *h
		candidate.Operations = operations
		return wording(run(t, &candidate, false).violation) == was
	}
	for size := len(h.Operations) / 2; size > 0; {
		removed := false
		for at := 0; at+size <= len(h.Operations); {
			without := slices.Delete(slices.Clone(h.Operations), at, at+size)
			if fails(without) {
				h.Operations, removed = without, true
			} else {
				at += size
			}
		}
		if !removed || size > 1 && size > len(h.Operations) {
			size /= 2
		}
	}
}

// check fails if too little has happened in so many histories to prove anything.
func (t tally) check(test *testing.T, histories int) {
	test.Helper()
	for what, least := range map[string]int{
		"restarts":                               histories / 4,
		"restarts for content that was not read": histories / 4,
		"records":                                histories,
		"sources that were adopted":              histories / 4,
		"evictions":                              histories / 100,
		"restarts of pods in place":              histories / 20,
		"restarts on request":                    histories / 20,
		"reports of agents":                      histories / 8,
		"workloads that agents keep in sync":     histories / 40,
		"restarts in doubt":                      histories / 40,
		"verdicts that kstatus must know of":     histories * 20,
		"releases":                               histories / 40,
		"workloads opted in at rest":             histories / 100,
		"updates of mounted classes":             histories / 4,
		"restarts of custom resources":           histories / 40,
		"pods that failed":                       histories / 20,
		"sources that became immutable":          histories / 40,
		"keys set and removed by another client": histories / 40,

		"restarts in waves":                                 histories,
		"restarts that a policy could have held":            histories / 2,
		"restarts on request that a policy could have held": histories / 100,
		"restarts with approved content":                    histories / 200,
		"at rest: Pending Budget":                           histories / 200,
		"at rest: Pending Order":                            histories / 80,

		"pauses": histories / 80,
		"states without a Secret that new pods bring":          histories / 4,
		"restarts that change variables":                       histories / 80,
		"restarts that are refused":                            histories / 200,
		"states with a name of what does not exist":            histories / 20,
		"pods that messages named, for which a rollout waited": histories / 80,
	} {
		if t[what] < least {
			test.Errorf("%d %s, want at least %d", t[what], what, least)
		}
	}
	for _, what := range slices.Sorted(maps.Keys(t)) {
		test.Logf("%7d in 1,000 histories: %s", t[what]*1000/histories, what)
	}
}

func (t tally) add(o tally) {
	for what, n := range o {
		t[what] += n
	}
}
