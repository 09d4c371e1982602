// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"net"
	"sync"
)

// The maximum number of connections to the webhook, from one host and in total. kube-apiserver opens a connection for each
// concurrent request, and keeps at most 25 idle ones.
const (
	maxConnections       = 512
	maxConnectionsOfHost = 128
)

// limitedListener limits the connections of a listener, in total and from each host, so that one host cannot use all of
// them.
type limitedListener struct {
	net.Listener

	mu    sync.Mutex
	all   int
	hosts map[string]int
}

func newLimitedListener(l net.Listener) *limitedListener {
	return &limitedListener{Listener: l, hosts: map[string]int{}}
}

// Accept closes connections beyond the limits. They are not queued, because their clients would then wait.
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
