// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"io"
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"
)

// endpoint acts as a Service: each new connection goes to one of the ready replicas, and open connections stay at their
// replica.
type endpoint struct {
	listener net.Listener

	mu    sync.Mutex
	ready []int // ports
	open  map[net.Conn]struct{}
	wg    sync.WaitGroup
}

func newEndpoint(t *testing.T) *endpoint {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := &endpoint{listener: listener, open: map[net.Conn]struct{}{}}
	e.wg.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return // closed
			}
			e.wg.Go(func() { e.serve(client) })
		}
	})
	t.Cleanup(e.close)
	return e
}

func (e *endpoint) port() string {
	return strconv.Itoa(e.listener.Addr().(*net.TCPAddr).Port)
}

func (e *endpoint) add(port int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ready = append(e.ready, port)
}

func (e *endpoint) remove(port int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ready = slices.DeleteFunc(e.ready, func(p int) bool { return p == port })
}

// next returns the next port in turn, or 0 if no replica is ready.
func (e *endpoint) next() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.ready) == 0 {
		return 0
	}
	e.ready = append(e.ready[1:], e.ready[0])
	return e.ready[0]
}

func (e *endpoint) serve(client net.Conn) {
	defer client.Close()
	port := e.next()
	if port == 0 {
		return
	}
	server, err := net.DialTCP("tcp", nil, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
	if err != nil {
		return
	}
	defer server.Close()
	e.mu.Lock()
	e.open[client], e.open[server] = struct{}{}, struct{}{}
	e.mu.Unlock()
	done := make(chan struct{}, 2)
	half := func(to, from net.Conn) {
		_, _ = io.Copy(to, from) // ends when either side closes
		_ = to.(*net.TCPConn).CloseWrite()
		done <- struct{}{}
	}
	go half(server, client)
	go half(client, server)
	<-done
	<-done
	e.mu.Lock()
	delete(e.open, client)
	delete(e.open, server)
	e.mu.Unlock()
}

func (e *endpoint) close() {
	_ = e.listener.Close()
	e.mu.Lock()
	for c := range e.open {
		_ = c.Close()
	}
	e.mu.Unlock()
	e.wg.Wait()
}
