// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// A success ends a series of failures, and another failure ends the quick retries after a conflict.
func TestPace_DelaysOfFailures(t *testing.T) {
	now := time.Unix(1000, 0)
	internal := apierrors.NewInternalError(errors.New("etcd"))
	var p pace
	for range 2 {
		if first, second := p.failed(now, "1", internal), p.failed(now, "1", internal); first != firstRetry || second != 2*firstRetry {
			t.Errorf("delays = %v and %v", first, second)
		}
		p.wrote(now, 1)
	}
	p = pace{}
	p.failed(now, "1", apierrors.NewConflict(coordinationv1.Resource("leases"), "web", errors.New("it is another version")))
	if wait := p.wait(now, "2"); wait != 0 {
		t.Errorf("another version after a conflict waits for %v", wait)
	}
	p.failed(now, "1", internal)
	if wait := p.wait(now, "2"); wait != 2*firstRetry {
		t.Errorf("another version after another failure waits for %v", wait)
	}
}

// A fight is over after a pause of twice the delay plus a minute. As many of its writes are
// remembered as there is room for.
func TestPace_EndOfAFight(t *testing.T) {
	last := time.Unix(1000, 0)
	for _, tt := range []struct {
		rounds int
		pause  time.Duration
		want   int
	}{
		{2, 62 * time.Second, 3},
		{2, 62*time.Second + 1, 1},
		{5, 68 * time.Second, 6},
		{5, 68*time.Second + 1, 1},
	} {
		p := pace{rounds: tt.rounds, last: last, written: []uint64{1}}
		p.wrote(last.Add(tt.pause), 1)
		if p.rounds != tt.want {
			t.Errorf("after %d rounds and a pause of %v: round = %d, want %d", tt.rounds, tt.pause, p.rounds, tt.want)
		}
	}
	var p pace
	for what := range uint64(remembered + 1) {
		p.wrote(last, what)
	}
	if p.wrote(last, 1); p.rounds != 1 || len(p.written) != remembered {
		t.Errorf("the second of %d writes is forgotten: round %d, %d are remembered", remembered+1, p.rounds, len(p.written))
	}
	if p.wrote(last, 0); p.rounds != 1 {
		t.Error("the first write is still remembered")
	}
}
