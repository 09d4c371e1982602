// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// balancer acts like a Service for replicas: it sends each new connection to the next ready replica, and leaves
// open connections alone.
type balancer struct {
	listener net.Listener
	probe    *http.Client

	mu       sync.Mutex
	replicas []*Replica
	next     int
	open     map[net.Conn]struct{}
	closed   bool
	wg       sync.WaitGroup
}

func newBalancer(probe *http.Client) (*balancer, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	b := &balancer{listener: listener, probe: probe, open: map[net.Conn]struct{}{}}
	b.wg.Go(b.accept)
	return b, nil
}

func (b *balancer) port() int { return b.listener.Addr().(*net.TCPAddr).Port }

func (b *balancer) add(r *Replica) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.replicas = append(b.replicas, r)
}

func (b *balancer) accept() {
	for {
		client, err := b.listener.Accept()
		if err != nil {
			return // closed
		}
		b.wg.Go(func() { b.serve(client) })
	}
}

// serve connects a client to a ready replica. If there is none, the connection is closed, as a Service without
// endpoints refuses it.
func (b *balancer) serve(client net.Conn) {
	defer client.Close()
	server := b.dial()
	if server == nil {
		return
	}
	defer server.Close()
	if !b.track(client, server) {
		return
	}
	defer b.untrack(client, server)

	done := make(chan struct{}, 2)
	copyHalf := func(to, from net.Conn) {
		_, _ = io.Copy(to, from) // returns when either side closes
		_ = to.(*net.TCPConn).CloseWrite()
		done <- struct{}{}
	}
	go copyHalf(server, client)
	go copyHalf(client, server)
	<-done
	<-done
}

// dial tries each replica once, starting with the next one.
func (b *balancer) dial() net.Conn {
	b.mu.Lock()
	replicas := append(append([]*Replica{}, b.replicas[b.next%max(1, len(b.replicas)):]...), b.replicas[:b.next%max(1, len(b.replicas))]...)
	b.next++
	b.mu.Unlock()
	for _, r := range replicas {
		if !r.ready(b.probe) {
			continue
		}
		if server, err := net.DialTimeout("tcp", r.Address(), 5*time.Second); err == nil {
			return server
		}
	}
	return nil
}

func (b *balancer) track(conns ...net.Conn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	for _, c := range conns {
		b.open[c] = struct{}{}
	}
	return true
}

func (b *balancer) untrack(conns ...net.Conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range conns {
		delete(b.open, c)
	}
}

func (b *balancer) close() {
	_ = b.listener.Close()
	b.mu.Lock()
	b.closed = true
	for c := range b.open {
		_ = c.Close()
	}
	b.mu.Unlock()
	b.wg.Wait()
}

// ready probes a replica as a kubelet does.
func (r *Replica) ready(probe *http.Client) bool {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return r.probe(ctx, probe, "/readyz") == nil
}

var errNotOK = errors.New("not ready")

func (r *Replica) probe(ctx context.Context, client *http.Client, path string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+r.Address()+path, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return errNotOK
	}
	return nil
}
