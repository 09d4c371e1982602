package certificate

import (
	"context"
	"flag"
	"math/rand"
	"testing"
	"time"

	"go.uber.org/goleak"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"
)

// Nothing that this package starts may outlive its context.
func TestMain(m *testing.M) {
	// One of the handlers sleeps until a millisecond after the last error. With the clocks of
	// synctest, that may be decades away.
	utilruntime.ErrorHandlers = nil //nolint:reassign // this is what it is for
	goleak.VerifyTestMain(m)
}

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

// quiet is a context whose logger says nothing of errors that a test causes.
func quiet(t *testing.T) context.Context {
	t.Helper()
	return klog.NewContext(t.Context(), klog.Logger{})
}
