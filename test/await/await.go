// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package await waits for what is about to happen.
package await

import (
	"context"
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// Limit is how long anything may take on a machine that does other things meanwhile.
const Limit = 3 * time.Minute

// Until calls check until it returns nil. It ends the test when that takes too long, with the
// last error.
func Until(t testing.TB, what string, check func(context.Context) error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, Limit, true, func(ctx context.Context) (bool, error) {
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
