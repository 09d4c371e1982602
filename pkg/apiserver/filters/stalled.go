// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"bufio"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
	"k8s.io/klog/v2"
)

// stalledAfter is how long the client of a watch may receive nothing while data waits to be sent. That begins
// when all buffers on the way are full, which hold some megabytes.
const stalledAfter = 30 * time.Second

func isWatch(r *http.Request) bool {
	info, found := genericapirequest.RequestInfoFrom(r.Context())
	return found && info.IsResourceRequest && info.Verb == "watch"
}

// endStalled ends a watch if a write to its client blocks for some time, between once and twice the
// given duration. Such a watch would keep its unsent events in memory until the client closes the
// connection: not even the end of the request interrupts the write.
func endStalled(next http.Handler, after time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isWatch(r) {
			next.ServeHTTP(w, r)
			return
		}
		writer := &watchWriter{ResponseWriter: w}
		logger := klog.FromContext(r.Context()).WithValues("path", r.URL.Path, "client", r.RemoteAddr)
		stop := writer.checkEvery(after, logger)
		defer stop()
		next.ServeHTTP(responsewriter.WrapForHTTP1Or2(writer), r)
	})
}

// watchWriter detects writes that block.
type watchWriter struct {
	http.ResponseWriter

	writes   atomic.Uint64 // counts the beginnings and ends of writes, so it is odd during a write
	last     uint64        // the value of writes at the last check
	hijacked atomic.Pointer[hijackedConn]
}

func (w *watchWriter) Write(p []byte) (int, error) {
	w.writes.Add(1)
	defer w.writes.Add(1)
	return w.ResponseWriter.Write(p)
}

// Flush implements http.Flusher. It counts as a write.
func (w *watchWriter) Flush() {
	w.writes.Add(1)
	defer w.writes.Add(1)
	w.ResponseWriter.(http.Flusher).Flush() //nolint:forcetypeassert // required by WrapForHTTP1Or2
}

// Hijack implements http.Hijacker. A watch over a WebSocket writes to the connection itself.
func (w *watchWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	hijacked := &hijackedConn{conn, &w.writes}
	w.hijacked.Store(hijacked)
	buffered.Writer.Reset(hijacked) // nothing has been written to it yet
	return hijacked, buffered, nil
}

// hijackedConn counts writes as its watchWriter does. A WebSocket has one at a time.
type hijackedConn struct {
	net.Conn

	writes *atomic.Uint64
}

func (c *hijackedConn) Write(p []byte) (int, error) {
	c.writes.Add(1)
	defer c.writes.Add(1)
	return c.Conn.Write(p)
}

// failWrite lets the write that is going on fail, and all that follow.
func (w *watchWriter) failWrite() error {
	if conn := w.hijacked.Load(); conn != nil {
		return conn.SetWriteDeadline(time.Unix(1, 0))
	}
	return http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Unix(1, 0))
}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (w *watchWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// stalled reports whether the write that was in progress at the last check still is.
func (w *watchWriter) stalled() bool {
	before := w.last
	w.last = w.writes.Load()
	return w.last%2 == 1 && w.last == before
}

// checkEvery makes a write fail that is in progress at two consecutive checks.
func (w *watchWriter) checkEvery(interval time.Duration, logger klog.Logger) (stop func()) {
	var mu sync.Mutex // the writer must not be used after the request
	over := false
	var timer *time.Timer
	check := func() {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case over:
		case w.stalled():
			logger.Info("Ending a watch whose client takes nothing", "for", interval)
			if err := w.failWrite(); err != nil {
				logger.Error(err, "Ending a watch whose client takes nothing")
			}
		default:
			timer.Reset(interval)
		}
	}
	mu.Lock()
	timer = time.AfterFunc(interval, check)
	mu.Unlock()
	return func() {
		mu.Lock()
		defer mu.Unlock()
		over = true
		timer.Stop()
	}
}
