// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"context"
	"math/rand"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/klog/v2"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/test/seeds"
)

// No goroutine of this package may outlive its context.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// withSeeds runs a test with several seeds (see test/seeds).
func withSeeds(t *testing.T, n int, test func(*testing.T, *rand.Rand)) {
	t.Helper()
	seeds.Each(t, n, func(t *testing.T, seed uint64) { test(t, rand.New(rand.NewSource(int64(seed)))) })
}

func pick[T any](r *rand.Rand, values ...T) T { return values[r.Intn(len(values))] }

func testDigester() *dependency.Digester {
	return dependency.NewDigester(make([]byte, dependency.KeySize))
}

// quiet returns a context whose logger does not report errors that a test causes, and which
// ends long before the timeout of go test.
func quiet(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return klog.NewContext(ctx, klog.Logger{})
}
