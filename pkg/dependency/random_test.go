package dependency

import (
	"flag"
	"math/rand"
	"testing"
	"time"
)

var seedFlag = flag.Int64("seed", 0, "the seed of property tests, to run a failure again")

// random returns a source of randomness whose seed is told when the test fails.
func random(t *testing.T) *rand.Rand {
	t.Helper()
	seed := *seedFlag
	if seed == 0 {
		seed = time.Now().UnixNano()
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("to run this again: -run='^%s$' -seed=%d", t.Name(), seed)
		}
	})
	return rand.New(rand.NewSource(seed))
}

// pick returns one of several values.
func pick[T any](r *rand.Rand, values ...T) T { return values[r.Intn(len(values))] }

// chance is true in one of n cases.
func chance(r *rand.Rand, n int) bool { return r.Intn(n) == 0 }
