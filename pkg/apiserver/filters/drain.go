// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package filters wraps the handlers of the server. It limits watches, and makes clients disconnect before a server shuts down.
package filters

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"
)

// Drain makes clients disconnect before a server shuts down. The aggregator uses one
// connection for all requests for as long as it works. So it would use this server until the
// end of the shutdown delay, and users would then get the error that the server is shutting
// down. The header Connection: close, which HTTP/2 turns into a GOAWAY, makes the aggregator
// reconnect to a server that is ready; requests in flight are still answered. Watches, which
// could last an hour, end as well, spread over some time.
type Drain struct{ begun atomic.Bool }

// WithClosing makes clients close their connections once the drain has begun.
func (d *Drain) WithClosing(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if d.begun.Load() {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// BeginWithin begins the drain in the middle of the shutdown delay, which begins when the
// context is done: before that, the Service may still route clients back to this server.
func (d *Drain) BeginWithin(ctx context.Context, delay time.Duration, endWatches func(within time.Duration)) {
	context.AfterFunc(ctx, func() {
		time.AfterFunc(delay/2, func() {
			d.begun.Store(true)
			endWatches(delay / 4)
		})
	})
}
