package ingest

import (
	"context"
	"flag"
	"math/rand"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/klog/v2"

	"github.com/configdep/configdep/pkg/dependency"
)

// Nothing that this package starts may outlive its context.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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

func pick[T any](r *rand.Rand, values ...T) T { return values[r.Intn(len(values))] }

func testDigester() *dependency.Digester {
	return dependency.NewDigester(make([]byte, dependency.KeySize))
}

// quiet is a context whose logger says nothing of errors that a test causes, and which
// ends long before go test gives up.
func quiet(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return klog.NewContext(ctx, klog.Logger{})
}
