// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package reload

import (
	"context"
	"sync"
	"time"

	"github.com/configdep/configdep/pkg/dependency"
)

// turns lets the requests for one workload take turns. Otherwise each of many would read and patch it again whenever
// another one was first, most of them until they give up. The zero value is ready for use.
type turns struct {
	mu sync.Mutex
	of map[dependency.WorkloadKey]*turn
}

// turn belongs to one request for a workload at a time.
type turn struct {
	taken    chan struct{} // holds a value while it is taken
	requests int           // that have it or wait for it
}

// maxWait is how long a request waits for its turn. It occupies a seat of priority and fairness meanwhile, and requests
// that wait for a seat are rejected after 15 seconds.
const maxWait = 10 * time.Second

// take waits for the turn of a request, and returns a function that ends it; nil: it has waited for too long, or the
// context is done.
func (t *turns) take(ctx context.Context, key dependency.WorkloadKey) (end func()) {
	one, timer := t.join(key), time.NewTimer(maxWait)
	defer timer.Stop()
	select {
	case one.taken <- struct{}{}:
		return func() {
			<-one.taken
			t.leave(key, one)
		}
	case <-timer.C:
	case <-ctx.Done():
	}
	t.leave(key, one)
	return nil
}

func (t *turns) join(key dependency.WorkloadKey) *turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	one := t.of[key]
	if one == nil {
		one = &turn{taken: make(chan struct{}, 1)}
		if t.of == nil {
			t.of = map[dependency.WorkloadKey]*turn{}
		}
		t.of[key] = one
	}
	one.requests++
	return one
}

func (t *turns) leave(key dependency.WorkloadKey, one *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if one.requests--; one.requests == 0 {
		delete(t.of, key)
	}
}
