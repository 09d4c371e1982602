// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/policy"
)

var (
	errRefused  = apierrors.NewForbidden(appsv1.Resource("deployments"), "web", errors.New("quota"))
	errConflict = apierrors.NewConflict(appsv1.Resource("deployments"), "web", errors.New("another version"))
)

func errLater(seconds int) error { return apierrors.NewTooManyRequests("later", seconds) }

// TestPace_OfRequestsThatFail: each request waits twice as long as the one before. Wait is the minimum
// wait before a retry after an event, delay the time until a retry without one.
func TestPace_OfRequestsThatFail(t *testing.T) {
	const ms = time.Millisecond
	type failure struct {
		err         error
		delay, wait time.Duration
	}
	refused := func(n int) (out []failure) {
		for i := range n {
			out = append(out, failure{errRefused, 5 * ms << i, 5 * ms << i})
		}
		return out
	}
	for name, tc := range map[string][]failure{
		"refused": append(refused(16), failure{errRefused, 5 * time.Minute, 5 * time.Minute}, failure{errRefused, 5 * time.Minute, 5 * time.Minute}),
		"another failure ends the quick retries after a conflict": {{errConflict, 5 * ms, 0}, {errRefused, 10 * ms, 10 * ms}},
		"conflicts: the first few only wait for the event of the change": {
			{errConflict, 5 * ms, 0}, {errConflict, 10 * ms, 0}, {errConflict, 20 * ms, 0}, {errConflict, 40 * ms, 0}, {errConflict, 80 * ms, 0},
			{errConflict, 160 * ms, time.Second}, {errConflict, 320 * ms, time.Second}, {errConflict, 640 * ms, time.Second},
		},
		"the API server sets a delay": {
			{errLater(30), 30 * time.Second, 30 * time.Second}, {errLater(0), 10 * ms, 10 * ms},
			{errLater(301), 5 * time.Minute, 5 * time.Minute}, {errLater(1), time.Second, time.Second},
		},
		"the API server sets a shorter delay": append(refused(10), failure{errLater(1), 5120 * ms, 5120 * ms}),
	} {
		t.Run(name, func(t *testing.T) {
			p, now := pace{}, time.Now()
			for i, f := range tc {
				if delay := p.failed(now, "1", f.err); delay != f.delay {
					t.Fatalf("failure %d: the request is tried again after %v, want %v", i, delay, f.delay)
				}
				if wait := p.wait(now, "2"); wait != f.wait {
					t.Fatalf("failure %d: an event waits for %v, want %v", i, wait, f.wait)
				}
				now = now.Add(f.delay)
				if wait := p.wait(now, "1"); wait != 0 {
					t.Fatalf("failure %d: after the delay the request still waits for %v", i, wait)
				}
			}
			p.wrote(now, 1)
			if wait := p.wait(now, "1"); wait != 0 {
				t.Errorf("after the request has worked, the next one waits for %v", wait)
			}
			if delay := p.failed(now, "1", errRefused); delay != 5*ms {
				t.Errorf("after the request has worked, the next failure is tried again after %v", delay)
			}
		})
	}
}

// TestPace_OfAFight: repeated writes get slower, and new ones are immediate.
func TestPace_OfAFight(t *testing.T) {
	// Each write happens after a pause, when its delay is over.
	type write struct {
		pause time.Duration
		what  uint64
		delay time.Duration // 0: no fight
	}
	again := func(n int, w write) []write { return slices.Repeat([]write{w}, n) }
	fight := []write{
		{0, 1, 0}, {0, 1, 0}, {0, 1, 0}, {0, 1, 0},
		{0, 1, time.Second}, {0, 1, 2 * time.Second}, {0, 1, 4 * time.Second}, {0, 1, 8 * time.Second},
	}
	long := slices.Concat(fight, []write{
		{0, 1, 16 * time.Second}, {0, 1, 32 * time.Second}, {0, 1, 64 * time.Second}, {0, 1, 128 * time.Second}, {0, 1, 256 * time.Second},
		{0, 1, 5 * time.Minute}, {0, 1, 5 * time.Minute},
	})
	different := func(n int) (out []write) {
		for i := range n {
			out = append(out, write{what: uint64(i) + 2})
		}
		return out
	}
	for name, tc := range map[string][]write{
		"one thing":               slices.Concat(long, again(100, write{0, 1, 5 * time.Minute})),
		"two alternating things":  {{0, 1, 0}, {0, 2, 0}, {0, 1, 0}, {0, 2, 0}, {0, 1, 0}, {0, 2, time.Second}, {0, 1, 2 * time.Second}},
		"always something new":    different(1000),
		"something new meanwhile": slices.Concat(fight, []write{{0, 2, 0}, {0, 1, 16 * time.Second}}),
		"what was written long ago is new": slices.Concat(
			again(4, write{0, 1, 0}), different(16), again(1, write{0, 1, 0}), []write{{0, 1, time.Second}}),
		"what was written a while ago is not": slices.Concat(again(4, write{0, 1, 0}), different(15), []write{{0, 1, time.Second}}),
		"a pause, but a short one":            slices.Concat(fight, []write{{time.Minute + 2*16*time.Second - 8*time.Second, 1, 16 * time.Second}}),
		"a pause that ends the fight": slices.Concat(fight, []write{{time.Minute + 2*16*time.Second - 8*time.Second + 1, 1, 0}},
			[]write{{0, 1, 0}, {0, 1, 0}, {0, 1, time.Second}}),
		"occasionally":                  again(100, write{time.Hour, 1, 0}),
		"each hour, after a long fight": slices.Concat(long, again(5, write{time.Hour, 1, 0})),
		"twice each hour":               slices.Repeat([]write{{time.Hour, 1, 0}, {time.Second, 1, 0}}, 100),
	} {
		t.Run(name, func(t *testing.T) {
			p, now := pace{}, time.Now()
			for i, w := range tc {
				now = now.Add(w.pause)
				if fight := p.wrote(now, w.what); fight != (w.delay > 0) || p.wait(now, "1") != w.delay {
					t.Fatalf("write %d, of %d: %v, the next write waits for %v, want %v", i, w.what, fight, p.wait(now, "1"), w.delay)
				}
				if w.delay > 0 && p.wait(now.Add(w.delay-1), "1") != 1 {
					t.Fatalf("write %d, of %d: the delay ends too early", i, w.what)
				}
				now = now.Add(w.delay)
			}
			if len(p.written) > remembered {
				t.Errorf("%d writes are remembered", len(p.written))
			}
		})
	}
}

// TestReconcile_OwnerThatStripsTheRecordIsFoughtEverMoreSlowly, and events report the fight.
func TestReconcile_OwnerThatStripsTheRecordIsFoughtEverMoreSlowly(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.synced()
		c.set(secret("db", "1"))
		c.owning(func() { // removes all annotations except its own, such as an operator that assigns metadata.annotations
			d := live(c, deployment("web", "db"))
			d.Annotations = map[string]string{policy.ReloadAnnotation: "auto"}
			c.set(d)
		})
		c.lead()
		c.set(deployment("web", "db"))
		c.advance(10 * time.Second)
		c.expect("in ten seconds", "0s baseline web", "10ms baseline web", "20ms baseline web", "30ms baseline web",
			"40ms baseline web", "1.04s baseline web", "3.04s baseline web", "7.04s baseline web")
		// Events with the same message are one event with a count.
		const fight = "Warning ConfigConflict Deployment/shop/web: Another client keeps reverting what configdep writes to this Deployment, " +
			"or its sources keep changing back and forth. configdep waits longer before each write, up to 5m."
		c.expectEvents("in ten seconds", fight, fight, fight, fight)
		c.expectState("the record is not there", decide.InSync, decide.ReasonRecordRemoved)
		c.advance(2 * time.Hour)
		if n := len(c.took()); n < 24 || n > 30 {
			t.Errorf("got %d patches in two hours, want one every five minutes", n)
		}
		c.owning(nil)
		c.advance(5 * time.Minute)
		c.expectDone("once the owner keeps the record", "baseline web")
		c.expectState("when the owner has learnt", decide.InSync, "ContentApplied")
		c.advance(24 * time.Hour)
		c.expect("then")
	})
}
