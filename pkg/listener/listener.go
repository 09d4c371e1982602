// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package listener limits what the clients of a port can use who are not authenticated. It imports nothing of this project.
package listener

import (
	"context"
	"errors"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

// limited limits the connections of a listener, in total and from each host, so that one host cannot use all of them.
type limited struct {
	net.Listener

	most, mostOfHost int

	mu    sync.Mutex
	all   int
	hosts map[string]int
}

// Limit returns a listener with at most so many connections, in total and from each host.
func Limit(l net.Listener, most, mostOfHost int) net.Listener { return newLimited(l, most, mostOfHost) }

func newLimited(l net.Listener, most, mostOfHost int) *limited {
	return &limited{Listener: l, most: most, mostOfHost: mostOfHost, hosts: map[string]int{}}
}

// The limits of a port with probes and metrics. A connection takes some 20 KiB, and ends after one request, so that a client which
// holds some keeps no probe waiting.
const (
	probes, probesOfHost = 64, 16
	probeHeader          = 4 << 10
	probeRequest         = 2 * time.Second // to arrive
	probeAnswer          = 10 * time.Second
)

// ServeProbes serves a handler of probes and metrics until the context ends.
func ServeProbes(ctx context.Context, l net.Listener, h http.Handler) error {
	s := &http.Server{Handler: h, ReadTimeout: probeRequest, WriteTimeout: probeAnswer, MaxHeaderBytes: probeHeader}
	s.SetKeepAlivesEnabled(false)
	stop := context.AfterFunc(ctx, func() { _ = s.Close() })
	defer stop()
	if err := s.Serve(Limit(l, probes, probesOfHost)); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Accept closes connections beyond the limits. They are not queued, because their clients would then wait.
func (l *limited) Accept() (net.Conn, error) {
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

func (l *limited) add(host string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == l.most || l.hosts[host] == l.mostOfHost {
		return false
	}
	l.all++
	l.hosts[host]++
	return true
}

func (l *limited) remove(host string) {
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

// ErrorLog returns a log for the errors of an HTTP server, at a high verbosity, because clients that are not authenticated can
// cause them. Of says whose they are.
func ErrorLog(logger klog.Logger, of string) *log.Logger { return log.New(verbose{logger, of}, "", 0) }

type verbose struct {
	logger klog.Logger
	of     string
}

// maxText limits the length of an error, in bytes.
const maxText = 512

// Write implements io.Writer.
func (w verbose) Write(p []byte) (int, error) {
	w.logger.V(5).Info("An HTTP server says something", "server", w.of, "message", string(p[:min(len(p), maxText)]))
	return len(p), nil
}
