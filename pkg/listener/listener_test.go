// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package listener

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

const most, mostOfHost = 32, 8

// A host that opens connections without end has a part of them, and others have theirs.
func TestLimit(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := newLimited(inner, most, mostOfHost)
	defer l.Close()
	l.hosts["127.0.0.2"] = mostOfHost // another host has all that it may
	l.all = mostOfHost
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
	for range mostOfHost {
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
	if l.all != 2*mostOfHost || l.hosts["127.0.0.1"] != mostOfHost {
		t.Errorf("%d are counted, of the host %d", l.all, l.hosts["127.0.0.1"])
	}
	_ = inner.Close()
	for range accepted { // until it has ended
	}
}

// A stranger in the network of the pods would otherwise use up the memory of a sidecar, which is that of the application too.
func TestServeProbes(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done, release := make(chan error, 1), make(chan struct{})
	go func() {
		done <- ServeProbes(ctx, l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			<-release
			_, _ = io.WriteString(w, "ok")
		}))
	}()
	const request = "GET / HTTP/1.1\r\nHost: x\r\n"
	answers := make(chan string)
	ask := func(request string) {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		_, _ = io.WriteString(c, request)
		go func() {
			answer, _ := io.ReadAll(c) // until the server closes the connection
			answers <- string(answer)
		}()
	}
	for range 3 * probesOfHost {
		ask(request + "\r\n")
	}
	for range 2 * probesOfHost {
		if answer := <-answers; answer != "" {
			t.Errorf("one too many: %q", answer)
		}
	}
	close(release)
	for range probesOfHost {
		if answer := <-answers; !strings.HasPrefix(answer, "HTTP/1.1 200 ") || !strings.HasSuffix(answer, "ok") {
			t.Errorf("a probe: %q", answer)
		}
	}
	ask(request) // and nothing more: it ends, although the client does not
	if answer := <-answers; strings.Contains(answer, "200") {
		t.Errorf("half a request: %q", answer)
	}
	ask(request + "X: " + strings.Repeat("x", 4<<10+probeHeader) + "\r\n\r\n") // net/http allows 4 KiB more
	if answer := <-answers; !strings.HasPrefix(answer, "HTTP/1.1 431 ") {
		t.Errorf("a large header: %q", answer)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestLimit_Total(t *testing.T) {
	l := newLimited(nil, most, mostOfHost)
	for i := range most {
		if !l.add(string(rune('a' + i/mostOfHost))) {
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
