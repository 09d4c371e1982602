// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"io"
	"net"
	"testing"
)

// A host that opens connections without end has a part of them, and others have theirs.
func TestLimitedListener(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := newLimitedListener(inner)
	defer l.Close()
	l.hosts["127.0.0.2"] = maxConnectionsOfHost // another host has all that it may
	l.all = maxConnectionsOfHost
	accepted := make(chan net.Conn)
	go func() {
		defer close(accepted)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	dial := func() net.Conn {
		c, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	var served []net.Conn
	for range maxConnectionsOfHost {
		dial()
		served = append(served, <-accepted)
	}
	tooMany := dial()
	if _, err := tooMany.Read(make([]byte, 1)); err == nil { // it ends, instead of waiting
		t.Error("one too many is served")
	}
	for range 2 { // to close twice counts once
		_ = served[0].Close()
	}
	again := dial()
	go func() { _, _ = io.WriteString(again, "x") }()
	if _, err := (<-accepted).Read(make([]byte, 1)); err != nil {
		t.Errorf("when another has ended: %v", err)
	}
	if l.all != 2*maxConnectionsOfHost || l.hosts["127.0.0.1"] != maxConnectionsOfHost {
		t.Errorf("%d are counted, of the host %d", l.all, l.hosts["127.0.0.1"])
	}
	_ = inner.Close()
	for range accepted { // until it has ended
	}
}

func TestLimitedListener_Total(t *testing.T) {
	l := newLimitedListener(nil)
	for i := range maxConnections {
		if !l.add(string(rune('a' + i/maxConnectionsOfHost))) {
			t.Fatalf("the connection %d is too many", i)
		}
	}
	if l.add("z") {
		t.Error("there are more connections than there may be")
	}
	l.remove("a")
	if !l.add("z") {
		t.Error("one that has ended still counts")
	}
}
