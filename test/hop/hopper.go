// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package hop

import (
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// Hopper gives each connection to any of some servers, and cuts connections when it is told
// to. Clients that go by it have to do with another server all the time.
type Hopper struct {
	listener net.Listener
	to       []string

	mu    sync.Mutex
	conns map[net.Conn]struct{} // of clients
	wg    sync.WaitGroup
}

// New returns a Hopper to some addresses.
func New(to ...string) (*Hopper, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	h := &Hopper{listener: listener, to: to, conns: map[net.Conn]struct{}{}}
	h.wg.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // closed
			}
			h.wg.Go(func() { h.serve(conn) })
		}
	})
	return h, nil
}

// Close cuts all connections, and accepts no more.
func (h *Hopper) Close() {
	_ = h.listener.Close()
	h.Cut()
	h.wg.Wait()
}

// Config returns the configuration of a client that goes by the Hopper, made from that of a
// client of one of the servers. It shares no connection with other clients.
func (h *Hopper) Config(server *rest.Config) *rest.Config {
	config := rest.CopyConfig(server)
	config.Host = "https://" + h.listener.Addr().String()
	config.Dial = (&net.Dialer{}).DialContext
	return config
}

func (h *Hopper) serve(client net.Conn) {
	defer client.Close()
	server, err := net.DialTimeout("tcp", h.to[rand.IntN(len(h.to))], 5*time.Second)
	if err != nil {
		return // it has been killed
	}
	defer server.Close()
	h.mu.Lock()
	h.conns[client] = struct{}{}
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.conns, client)
	}()
	done := make(chan struct{}, 2)
	half := func(to, from net.Conn) {
		_, _ = io.Copy(to, from)
		_ = to.Close()
		_ = from.Close()
		done <- struct{}{}
	}
	go half(server, client)
	go half(client, server)
	<-done
	<-done
}

// Open returns the number of connections.
func (h *Hopper) Open() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.conns)
}

// Cut closes all connections.
func (h *Hopper) Cut() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for c := range h.conns {
		_ = c.Close()
	}
}

// CutOne closes one of the connections.
func (h *Hopper) CutOne() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for c := range h.conns {
		_ = c.Close()
		return
	}
}
