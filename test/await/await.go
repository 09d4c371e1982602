// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package await waits for what is about to happen.
package await

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// Limit is how long anything may take on a machine that does other things meanwhile.
const Limit = 5 * time.Minute

// interval is how long Until waits between two checks: at first the duration, and later a tenth of the time that has passed, up
// to the cap, so that many tests that wait do not slow down what they wait for.
var interval = wait.Backoff{Duration: 50 * time.Millisecond, Factor: 1.1, Steps: math.MaxInt, Cap: time.Second}

// Until calls check until it returns nil. It ends the test when that takes too long, with the
// last error.
func Until(t testing.TB, what string, check func(context.Context) error) {
	t.Helper()
	until(t, what, interval, check)
}

// Watching is Until for a check that notes what it sees on the way: the time between two checks does not grow.
func Watching(t testing.TB, what string, check func(context.Context) error) {
	t.Helper()
	until(t, what, wait.Backoff{Duration: interval.Duration}, check)
}

func until(t testing.TB, what string, every wait.Backoff, check func(context.Context) error) {
	t.Helper()
	var last error
	ctx, cancel := context.WithTimeout(t.Context(), Limit)
	defer cancel()
	err := every.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		err := check(ctx)
		if ctx.Err() == nil || err == nil {
			last = err
		}
		return err == nil, nil
	})
	if err != nil {
		t.Fatalf("waiting until %s: %v: %v", what, err, last)
	}
}

// Passes calls get until it returns an object that passes all checks, and returns that.
func Passes[T any](t testing.TB, what string, get func(context.Context) (T, error), checks ...func(T) error) (found T) {
	t.Helper()
	Until(t, what, func(ctx context.Context) (err error) {
		if found, err = get(ctx); err != nil {
			return err
		}
		for _, check := range checks {
			err = errors.Join(err, check(found))
		}
		return err
	})
	return found
}

// NextSecond returns in another second than that in which it is called. API objects tell times in whole seconds: what is
// written then is later than what was written before.
func NextSecond(ctx context.Context) error {
	called := time.Now().Truncate(time.Second)
	return wait.PollUntilContextCancel(ctx, 10*time.Millisecond, true, func(context.Context) (bool, error) {
		return time.Now().Truncate(time.Second).After(called), nil
	})
}
