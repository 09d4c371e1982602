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
// another one was first, most of them until they give up, and all would hold the workload in memory at once. The zero value is ready
// for use.
type turns struct {
	mu sync.Mutex
	of map[turnKey]*turn
}

// turnKey is what requests take turns for. Dry runs do not delay other requests.
type turnKey struct {
	dependency.WorkloadKey

	dryRun bool
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
func (t *turns) take(ctx context.Context, key turnKey) (end func()) {
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

func (t *turns) join(key turnKey) *turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	one := t.of[key]
	if one == nil {
		one = &turn{taken: make(chan struct{}, 1)}
		if t.of == nil {
			t.of = map[turnKey]*turn{}
		}
		t.of[key] = one
	}
	one.requests++
	return one
}

func (t *turns) leave(key turnKey, one *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if one.requests--; one.requests == 0 {
		delete(t.of, key)
	}
}
