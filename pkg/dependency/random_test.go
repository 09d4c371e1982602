// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"math/rand"
	"testing"

	"github.com/configdep/configdep/test/seeds"
)

// withSeeds runs a test with several seeds (see test/seeds).
func withSeeds(t *testing.T, n int, test func(*testing.T, *rand.Rand)) {
	t.Helper()
	seeds.Each(t, n, func(t *testing.T, seed uint64) { test(t, rand.New(rand.NewSource(int64(seed)))) })
}

// pick returns one of several values.
func pick[T any](r *rand.Rand, values ...T) T { return values[r.Intn(len(values))] }

// chance returns true in one of n cases.
func chance(r *rand.Rand, n int) bool { return r.Intn(n) == 0 }
