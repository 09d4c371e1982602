// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"encoding/json"
	"fmt"
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
			o.checkAlike()
			if o.violation != "" {
				break
			}
		}
		if o.violation == "" {
			s.world.logf("the end")
			s.calm()
			o.checkCalm()
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
			t.Logf("%v%s\n%+v", h, strings.Join(out.trace, "\n"), out.tally)
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
	var sum tally
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

// check fails if too little has happened in so many histories to prove anything, or if too much was excused.
func (t *tally) check(test *testing.T, histories int) {
	test.Helper()
	for what, least := range map[string]struct{ got, want int }{
		"restarts":                            {t.Restarts, histories / 4},
		"baselines":                           {t.Baselines, histories},
		"conflicts":                           {t.Conflicts, histories / 8},
		"failed requests":                     {t.Failures, histories / 8},
		"look-ups of the order of changes":    {t.Reads, histories / 400},
		"evictions":                           {t.Evictions, histories / 100},
		"Reloads":                             {t.Reloads, histories / 20},
		"patches of the webhook":              {t.Admitted, histories / 20},
		"reports of agents":                   {t.Reports, histories / 4},
		"workloads that agents keep in sync":  {t.AgentsInSync, histories / 40},
		"workloads that agents have not":      {t.AgentsNot, histories / 40},
		"restarts in place":                   {t.InPlace, histories / 20},
		"restarts in place that ended":        {t.DoneInPlace, histories / 20},
		"pods that were told to restart":      {t.Told, histories / 10},
		"pods that were told again":           {t.ToldAgain, histories / 200},
		"restarts in place that halted":       {t.Halted, histories / 200},
		"rollouts instead":                    {t.NotInPlace, histories / 200},
		"pauses":                              {t.Pauses, histories / 100},
		"ends of pauses":                      {t.Resumes, histories / 100},
		"definitions that go":                 {t.Withdrawals, histories / 8},
		"definitions that come":               {t.Definitions, histories / 8},
		"versions that change":                {t.Versions, histories / 20},
		"rights that are taken away":          {t.Denials, histories / 8},
		"lists after the first ones":          {t.LateLists, histories / 4},
		"restarts of custom resources":        {t.CustomRestarts, histories / 8},
		"restarts after such a list":          {t.LateRestarts, histories / 200},
		"restarts that were necessary":        {t.Restarts - t.Ambiguous - t.Optional, histories / 4},
		"restarts for a weak reason, negated": {-t.Ambiguous, -t.Restarts / 6},
	} {
		if least.got < least.want {
			test.Errorf("%d %s, want at least %d", least.got, what, least.want)
		}
	}
}

func (t *tally) add(o tally) {
	t.Restarts += o.Restarts
	t.Baselines += o.Baselines
	t.Conflicts += o.Conflicts
	t.Reads += o.Reads
	t.Failures += o.Failures
	t.Evictions += o.Evictions
	t.Reloads += o.Reloads
	t.Admitted += o.Admitted
	t.Ambiguous += o.Ambiguous
	t.Optional += o.Optional
	t.Unknowable += o.Unknowable
	t.Fights += o.Fights
	t.Pauses += o.Pauses
	t.Withdrawals += o.Withdrawals
	t.Definitions += o.Definitions
	t.Versions += o.Versions
	t.Denials += o.Denials
	t.LateLists += o.LateLists
	t.CustomRestarts += o.CustomRestarts
	t.LateRestarts += o.LateRestarts
	t.Resumes += o.Resumes
	t.Reports += o.Reports
	t.AgentsInSync += o.AgentsInSync
	t.AgentsNot += o.AgentsNot
	t.InPlace += o.InPlace
	t.DoneInPlace += o.DoneInPlace
	t.Told += o.Told
	t.ToldAgain += o.ToldAgain
	t.Halted += o.Halted
	t.NotInPlace += o.NotInPlace
}
