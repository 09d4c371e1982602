// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// relay forwards connections to an address and delays the data in each direction, as a distant network would.
type relay struct {
	listener net.Listener
	to       string
	delay    time.Duration // in each direction
	stop     context.CancelFunc
	running  sync.WaitGroup
	received atomic.Int64 // the bytes that came from the address, as they were on the wire
}

func newRelay(to string, delay time.Duration) (*relay, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	r := &relay{listener: listener, to: to, delay: delay, stop: stop}
	r.running.Go(func() { r.accept(ctx) })
	return r, nil
}

func (r *relay) address() string { return r.listener.Addr().String() }

// close closes all connections.
func (r *relay) close() {
	r.stop()
	_ = r.listener.Close()
	r.running.Wait()
}

func (r *relay) accept(ctx context.Context) {
	for {
		in, err := r.listener.Accept()
		if err != nil {
			return // the relay is closed
		}
		r.running.Go(func() { r.pass(ctx, in) })
	}
}

// pass forwards one connection until either side closes it.
func (r *relay) pass(ctx context.Context, in net.Conn) {
	defer in.Close()
	out, err := (&net.Dialer{}).DialContext(ctx, "tcp", r.to)
	if err != nil {
		return
	}
	defer out.Close()
	defer context.AfterFunc(ctx, func() { in.Close(); out.Close() })()
	var both sync.WaitGroup
	for _, way := range []struct {
		from, to net.Conn
		bytes    *atomic.Int64
	}{{in, out, &atomic.Int64{}}, {out, in, &r.received}} {
		both.Go(func() {
			r.copy(way.to, way.from, way.bytes)
			in.Close()
			out.Close()
		})
	}
	both.Wait()
}

// piece is the data of one read.
type piece struct {
	due  time.Time
	data []byte
}

func (r *relay) copy(to, from net.Conn, bytes *atomic.Int64) {
	pieces := make(chan piece, 1024)
	var writer sync.WaitGroup
	defer writer.Wait()
	defer close(pieces)
	writer.Go(func() {
		failed := false
		for p := range pieces { // the reader must not block on a full channel
			if failed {
				continue
			}
			<-time.After(time.Until(p.due))
			if _, err := to.Write(p.data); err != nil {
				failed = true
				from.Close()
			}
		}
	})
	for {
		buffer := make([]byte, 32<<10)
		n, err := from.Read(buffer)
		bytes.Add(int64(n))
		if n > 0 {
			pieces <- piece{time.Now().Add(r.delay), buffer[:n]}
		}
		if err != nil {
			return
		}
	}
}
