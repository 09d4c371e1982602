// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"
)

// Drain sends clients away before a server ends. The aggregator keeps one connection
// for all of its requests and opens no other while that one works, so it would stay until
// the end of the shutdown delay and then pass on to users that the server is shutting
// down. A Connection: close, which HTTP/2 turns into a GOAWAY, makes it connect again, to a
// server that is ready; what is under way is still answered. Watches would be under way for
// an hour: they end then too, spread over some time.
type Drain struct{ begun atomic.Bool }

// WithClosing makes clients close their connections once it has begun.
func (d *Drain) WithClosing(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if d.begun.Load() {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// BeginWithin begins in the middle of the shutdown delay after the context is done: until
// then the endpoints of the Service may still lead clients back here.
func (d *Drain) BeginWithin(ctx context.Context, delay time.Duration, endWatches func(within time.Duration)) {
	context.AfterFunc(ctx, func() {
		time.AfterFunc(delay/2, func() {
			d.begun.Store(true)
			endWatches(delay / 4)
		})
	})
}
