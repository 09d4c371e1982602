// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bufio"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/configdep/configdep/pkg/metrics"
)

// deliver sends an event over a real connection, to the secret path of a server, and returns what became of it. Delays
// between attempts are short.
func deliver(t *testing.T, server string, c Config) (result, reason string) {
	t.Helper()
	ctx, _ := logs(t)
	scheme, host, _ := strings.Cut(server, "://")
	c.URL = scheme + "://s3cret-user:s3cret-password@" + host + secretPath + "?token=s3cret-query"
	s := mustNew(t, c)
	t.Cleanup(s.closeIdle)
	s.backoff = wait.Backoff{Duration: time.Microsecond}
	e := restarted("web")
	result, err := s.deliver(ctx, &e)
	if err != nil {
		reason = err.Error()
		noSecrets(t, reason)
	}
	return result, reason
}

func serve(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.URL
}

func TestTransport_Delivers(t *testing.T) {
	var requests atomic.Int32
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		body, err := io.ReadAll(r.Body)
		if r.Method != http.MethodPost || r.URL.Path != secretPath || r.URL.RawQuery != "token=s3cret-query" || err != nil || len(body) == 0 || int64(len(body)) != r.ContentLength {
			t.Errorf("%s %s with %d bytes: %v", r.Method, r.URL, len(body), err)
		}
		if user, password, _ := r.BasicAuth(); user != "s3cret-user" || password != "s3cret-password" {
			t.Errorf("user = %q, password = %q", user, password)
		}
		if got := r.Header.Get("Accept-Encoding"); got != "" { // what is bounded is the decompressed size
			t.Errorf("Accept-Encoding = %q, want none", got)
		}
		w.WriteHeader(http.StatusAccepted)
	})
	if result, reason := deliver(t, server, Config{}); result != metrics.NotificationDelivered || requests.Load() != 1 {
		t.Errorf("result = %s, %s after %d requests", result, reason, requests.Load())
	}
}

// A status is an answer, whatever becomes of the body.
func TestTransport_SlowBody(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	if result, reason := deliver(t, server, Config{Timeout: time.Second}); result != metrics.NotificationDelivered {
		t.Errorf("result = %s, %s", result, reason)
	}
}

func TestTransport_EndlessBody(t *testing.T) {
	ended := make(chan int, 1)
	server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		sent := 0
		for {
			n, err := w.Write(make([]byte, 32<<10))
			if sent += n; err != nil {
				ended <- sent
				return
			}
		}
	})
	// Far less time than the limit: the body is left, not read until then.
	if result, reason := deliver(t, server, Config{Timeout: time.Hour}); result != metrics.NotificationDelivered {
		t.Errorf("result = %s, %s", result, reason)
	}
	if sent := <-ended; sent < maxResponse {
		t.Errorf("the server sent %d bytes, want at least %d", sent, maxResponse)
	}
}

func TestTransport_BoundsHeaders(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Large", strings.Repeat("x", 128<<10))
	})
	if result, reason := deliver(t, server, Config{}); result != metrics.NotificationFailed {
		t.Errorf("result = %s, %s", result, reason)
	}
}

func TestTransport_RefusesRedirects(t *testing.T) {
	var followed, requests atomic.Int32
	other := serve(t, func(http.ResponseWriter, *http.Request) { followed.Add(1) })
	for _, location := range []string{other, "https://s3cret%zz", ""} {
		for _, code := range []int{301, 302, 303, 307, 308} {
			requests.Store(0)
			server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				requests.Add(1)
				w.Header().Set("Location", location)
				w.WriteHeader(code)
			})
			result, reason := deliver(t, server, Config{})
			if result != metrics.NotificationRejected || !strings.Contains(reason, "redirects are not followed") || requests.Load() != 1 {
				t.Errorf("%d to %q: result = %s, %s after %d requests", code, location, result, reason, requests.Load())
			}
		}
	}
	if followed.Load() > 0 {
		t.Errorf("%d redirects were followed", followed.Load())
	}
}

func TestTransport_ClosedConnection(t *testing.T) {
	var requests atomic.Int32
	server := serve(t, func(http.ResponseWriter, *http.Request) {
		requests.Add(1)
		panic(http.ErrAbortHandler)
	})
	result, reason := deliver(t, server, Config{})
	if result != metrics.NotificationFailed || reason != "the destination closed the connection without an answer" || int(requests.Load()) != maxAttempts {
		t.Errorf("result = %s, %s after %d requests", result, reason, requests.Load())
	}
}

// An error says what is wrong with a certificate, which users have to fix.
func TestTransport_UntrustedCertificate(t *testing.T) {
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	result, reason := deliver(t, server.URL, Config{})
	if result != metrics.NotificationFailed || !strings.Contains(reason, "certificate signed by unknown authority") {
		t.Errorf("result = %s, %s", result, reason)
	}
	c := Config{Transport: server.Client().Transport}
	if result, reason := deliver(t, server.URL, c); result != metrics.NotificationRejected || !strings.Contains(reason, "404 Not Found") {
		t.Errorf("with the CA, result = %s, %s", result, reason)
	}
	if result, reason := deliver(t, strings.Replace(serve(t, http.NotFound), "http", "https", 1), Config{}); result != metrics.NotificationFailed || reason != "the destination does not use TLS" {
		t.Errorf("without TLS, result = %s, %s", result, reason)
	}
}

// A server that speaks no HTTP may send back what it received, so that the error of the transport contains it.
func TestTransport_EchoIsNotLogged(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() {
		listener.Close()
		<-done
	})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			line, _ := bufio.NewReader(conn).ReadString('\n')
			_, _ = io.WriteString(conn, line)
			conn.Close()
		}
	}()
	// Closing a connection with unread data may reset it, so that the first bytes are lost: any reason is right.
	if result, reason := deliver(t, "http://"+listener.Addr().String(), Config{}); result != metrics.NotificationFailed || reason == "" {
		t.Errorf("result = %s, %s", result, reason)
	}
	if got := withoutSecrets(errTransport).Error(); got != "the request failed; the cause is not logged, because it may contain the URL" {
		t.Errorf("error = %q", got)
	}
}

func TestSink_LeavesNoConnections(t *testing.T) {
	closed := make(chan struct{})
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			close(closed)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	ctx, _ := logs(t)
	s := mustNew(t, Config{URL: server.URL})
	e := restarted("web")
	if result, err := s.deliver(ctx, &e); result != metrics.NotificationDelivered {
		t.Fatalf("result = %s, %v", result, err)
	}
	start(ctx, t, s).stop()
	select {
	case <-closed:
	case <-time.After(time.Minute):
		t.Error("the connection is still open")
	}
}
