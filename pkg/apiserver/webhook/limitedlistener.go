// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"net"
	"sync"
)

// How many connections to the webhook there may be, of one host and of all. kube-apiserver has as many as requests at
// once, and keeps at most 25.
const (
	maxConnections       = 512
	maxConnectionsOfHost = 128
)

// limitedListener bounds the connections of a listener, and those of one host, so that one that takes many leaves room
// for others.
type limitedListener struct {
	net.Listener

	mu    sync.Mutex
	all   int
	hosts map[string]int
}

func newLimitedListener(l net.Listener) *limitedListener {
	return &limitedListener{Listener: l, hosts: map[string]int{}}
}

// Accept closes connections that are too many. They do not wait, or clients would wait with them.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		host, _, err := net.SplitHostPort(c.RemoteAddr().String())
		if err != nil {
			host = c.RemoteAddr().String()
		}
		if l.add(host) {
			return &countedConn{Conn: c, closed: sync.OnceFunc(func() { l.remove(host) })}, nil
		}
		_ = c.Close()
	}
}

func (l *limitedListener) add(host string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == maxConnections || l.hosts[host] == maxConnectionsOfHost {
		return false
	}
	l.all++
	l.hosts[host]++
	return true
}

func (l *limitedListener) remove(host string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all--
	if l.hosts[host]--; l.hosts[host] == 0 {
		delete(l.hosts, host)
	}
}

type countedConn struct {
	net.Conn

	closed func()
}

// Close implements net.Conn.
func (c *countedConn) Close() error {
	defer c.closed()
	return c.Conn.Close()
}
