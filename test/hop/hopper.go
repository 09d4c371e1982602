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

// Hopper forwards each connection to a random server of several, and breaks connections on request. Clients that
// connect through it switch servers all the time.
type Hopper struct {
	listener net.Listener
	to       []string

	mu    sync.Mutex
	conns map[net.Conn]struct{} // from clients
	wg    sync.WaitGroup
}

// New returns a Hopper that forwards to the given addresses.
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

// Close breaks all connections and stops accepting new ones.
func (h *Hopper) Close() {
	_ = h.listener.Close()
	h.Cut()
	h.wg.Wait()
}

// Config returns the configuration of a client that connects through the Hopper, based on the configuration for
// one of the servers. The client shares no connection with other clients.
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
		return // the server was killed
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

// Cut breaks all connections.
func (h *Hopper) Cut() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for c := range h.conns {
		_ = c.Close()
	}
}

// CutOne breaks one of the connections.
func (h *Hopper) CutOne() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for c := range h.conns {
		_ = c.Close()
		return
	}
}
