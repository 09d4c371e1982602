// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package action

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// listen serves one connection with a function, and returns the address.
func listen(t *testing.T, network, address string, serve func(c net.Conn)) Address {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), network, address)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		serve(c)
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	a, err := ParseAddress(network + "://" + l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestSend(t *testing.T) {
	const secret = "PASSWORD"
	say := func(parts ...string) func(net.Conn) {
		return func(c net.Conn) {
			for _, part := range parts {
				_, _ = io.WriteString(c, part)
			}
		}
	}
	// waits until the client ends the connection.
	wait := func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }
	big := strings.Repeat(secret, maxAnswer/len(secret))
	for name, tt := range map[string]struct {
		answer    func(c net.Conn)
		expect    string
		interrupt bool // after the answer
		err       string
	}{
		"no answer":                         {answer: say()},
		"any answer":                        {answer: say(secret, secret)},
		"an answer once no more comes":      {answer: func(c net.Conn) { wait(c); say(secret)(c) }},
		"an answer that is too long":        {answer: func(c net.Conn) { say(big)(c); wait(c) }},
		"the connection does not end":       {answer: say(secret), interrupt: true, err: "newer"},
		"the expected answer":               {answer: say("\nSuccess=1\n--\n"), expect: "Success=1"},
		"it is not waited for more":         {answer: func(c net.Conn) { say("OK\r\n")(c); wait(c) }, expect: "OK\r\n"},
		"in pieces":                         {answer: say("Succ", "ess", "=1"), expect: "Success=1"},
		"after much else":                   {answer: say(big[:4090]+"Succ", "ess=1"), expect: "Success=1"},
		"the last that is read":             {answer: func(c net.Conn) { say(big[:maxAnswer-2] + "OK")(c); wait(c) }, expect: "OK"},
		"after too much":                    {answer: func(c net.Conn) { say(big[:maxAnswer-1] + "OK")(c); wait(c) }, expect: "OK", err: "the first 65536 bytes of the answer are not the expected ones"},
		"another answer":                    {answer: say(secret, "Success=0"), expect: "Success=1", err: "the answer is not the expected one"},
		"no answer where one was expected":  {answer: say(), expect: "Success=1", err: "the answer is not the expected one"},
		"the expected answer does not come": {answer: say(secret), expect: "OK", interrupt: true, err: "newer"},
		"the connection is cut": {
			answer: func(c net.Conn) {
				if tcp, is := c.(*net.TCPConn); is {
					_ = tcp.SetLinger(0)
				}
			}, expect: "OK", err: "reset",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			got, release := make(chan string, 1), make(chan struct{})
			to := listen(t, "tcp", "127.0.0.1:0", func(c net.Conn) {
				line, _ := bufio.NewReader(c).ReadString('\n')
				got <- line
				if tt.answer(c); tt.interrupt {
					cancel(errors.New("newer"))
					<-release
				}
			})
			s := &Send{Text: []byte("reload " + secret + "\n"), To: to, Expect: []byte(tt.expect), Timeout: limit}
			err := s.Do(ctx)
			close(release)
			if (err != nil) != (tt.err != "") || err != nil && (!strings.HasPrefix(err.Error(), "bytes to tcp://127.0.0.1:") || !strings.Contains(err.Error(), tt.err) || strings.Contains(err.Error(), secret)) {
				t.Errorf("error %v, want %q", err, tt.err)
			}
			select {
			case line := <-got:
				if line != "reload "+secret+"\n" {
					t.Errorf("it got %q", line)
				}
			case <-time.After(limit):
				t.Error("it got nothing")
			}
		})
	}
}

// Each try ends in time, and tells what it has waited for. How far it has come by then does not matter.
func TestSend_Timeout(t *testing.T) {
	for expect, want := range map[string]string{"": "the connection did not end within 50ms", "OK": "no expected answer within 50ms"} {
		release := make(chan struct{})
		s := &Send{Text: []byte("reload\n"), Expect: []byte(expect), Timeout: 50 * time.Millisecond, To: listen(t, "tcp", "127.0.0.1:0", func(net.Conn) { <-release })}
		err := s.Do(t.Context())
		close(release)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

func TestSend_Socket(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "socket")
	got := make(chan string, 1)
	s := &Send{Text: []byte("\x00\n"), Timeout: limit, To: listen(t, "unix", socket, func(c net.Conn) {
		all, _ := io.ReadAll(c)
		got <- string(all)
	})}
	if err := s.Do(t.Context()); err != nil || <-got != "\x00\n" || s.String() != "bytes to unix://"+socket {
		t.Errorf("%s: %v", s, err)
	}
	s.To.address += "x"
	if err := s.Do(t.Context()); err == nil || !strings.Contains(err.Error(), "bytes to unix://"+socket+"x: ") {
		t.Errorf("without a socket: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	newer := errors.New("newer")
	cancel(newer)
	if err := s.Do(ctx); !errors.Is(err, newer) {
		t.Errorf("error %v of an interrupted try", err)
	}
}

func TestParseAddress(t *testing.T) {
	for text, good := range map[string]bool{
		"tcp://127.0.0.1:9999": true, "tcp://[::1]:1": true, "tcp://localhost:65535": true, "unix:///run/haproxy.sock": true, "unix:///a b": true,
		"": false, "tcp://": false, "tcp://localhost": false, "tcp://:80": false, "tcp://a:0": false, "tcp://a:65536": false, "tcp://a:http": false, "tcp://a:b:1": false,
		"tcp://user:x@a:1": false, "tcp://a:1/x": false, "unix://run/x": false, "unix://": false, "unix:///a\x00": false, "udp://a:1": false, "/run/x": false, "a:1": false,
	} {
		a, err := ParseAddress(text)
		if (err == nil) != good || good && a.String() != text {
			t.Errorf("ParseAddress(%q) = %v, %v", text, a, err)
		}
	}
}

func TestParseBytes(t *testing.T) {
	for text, want := range map[string]string{
		"reload": "reload", `reload\n`: "reload\n", "reload\n": "reload\n", `a\r\n\t\\\x00\xff\377b`: "a\r\n\t\\\x00\xff\xffb", `ü\u00fc"'`: "üü\"'", "\xff": "\xff", "": "",
	} {
		if got, err := ParseBytes(text); err != nil || string(got) != want {
			t.Errorf("ParseBytes(%q) = %q, %v", text, got, err)
		}
	}
	for _, text := range []string{`\`, `PASSWORD\`, `\x0`, `\q`, `\"`, `\'`, `\400`, `\ud800`} {
		if got, err := ParseBytes(text); err == nil || strings.Contains(err.Error(), "PASSWORD") {
			t.Errorf("ParseBytes(%q) = %q, %v", text, got, err)
		}
	}
}

// Each text without backslashes stands for itself, and no text makes the parser panic.
func FuzzParseBytes(f *testing.F) {
	for _, text := range []string{`reload\n`, `\x00\377\u00fc`, `\`, "\xff", `\\n`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := ParseBytes(text)
		if !strings.Contains(text, `\`) && (err != nil || string(got) != text) {
			t.Errorf("%q, %v", got, err)
		}
		doubled := strings.ReplaceAll(text, `\`, `\\`)
		if got, err := ParseBytes(doubled); err != nil || !bytes.Equal(got, []byte(text)) {
			t.Errorf("%q is %q, %v", doubled, got, err)
		}
		if len(got) > len(text) {
			t.Errorf("%q is longer than %q", got, text)
		}
	})
}

// No text makes the parser of addresses panic, and each address that it takes can be parsed again.
func FuzzParseAddress(f *testing.F) {
	for _, text := range []string{"tcp://[::1]:80", "unix:///run/x", "tcp://a", "://"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if a, err := ParseAddress(text); err == nil && (a.String() != text || a.address == "") {
			t.Errorf("%q is %+v", text, a)
		}
	})
}
