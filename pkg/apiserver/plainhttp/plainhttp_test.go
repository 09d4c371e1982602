// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package plainhttp

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// start starts a server on a free port, and returns its URL. The server ends with the context.
func start(ctx context.Context, t *testing.T, s Server, serving *sync.WaitGroup) string {
	t.Helper()
	address, err := s.Start(ctx, serving)
	if err != nil {
		t.Fatal(err)
	}
	return "http://" + address.String()
}

func do(t *testing.T, method, url, body string) (code int, answer string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(content)
}

// Each serves its own paths only: not those of the other, nor what other packages have registered for all.
func TestServer_ServesItsPaths(t *testing.T) {
	http.HandleFunc("/for-all", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "no") })
	for name, tt := range map[string]struct {
		server Server
		serves map[string]string // requests, with a part of the answer
		not    map[string]int
	}{
		"metrics": {Metrics("--metrics", "127.0.0.1:0"), map[string]string{
			"GET /metrics": "go_goroutines", "HEAD /metrics": "",
		}, map[string]int{
			"GET /": 404, "POST /metrics": 405, "GET /metrics/slis": 404, "GET /debug/pprof/": 404, "GET /for-all": 404, "GET /healthz": 404,
		}},
		"profiles": {Profiles("--profiles", "127.0.0.1:0"), map[string]string{
			"GET /debug/pprof/": "goroutine", "GET /debug/pprof/heap": "", "GET /debug/pprof/goroutine?debug=1": "plainhttp",
			"GET /debug/pprof/cmdline": "plainhttp.test", "GET /debug/pprof/symbol": "num_symbols", "POST /debug/pprof/symbol": "num_symbols", "GET /debug/pprof/trace?seconds=0.01": "go 1",
		}, map[string]int{
			"GET /": 404, "GET /metrics": 404, "GET /for-all": 404, "POST /debug/pprof/cmdline": 405, "GET /debug/pprof/none": 404,
			"GET /debug/pprof/profile?seconds=121": 400, "GET /debug/pprof/trace?seconds=Inf": 400, "GET /debug/pprof/trace?seconds=NaN": 400, "GET /debug/pprof/heap?seconds=1e9": 400,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			var serving sync.WaitGroup
			defer serving.Wait()
			defer stop()
			url := start(ctx, t, tt.server, &serving)
			for request, part := range tt.serves {
				method, path, _ := strings.Cut(request, " ")
				if code, answer := do(t, method, url+path, ""); code != http.StatusOK || !strings.Contains(answer, part) {
					t.Errorf("%s: %d %.200s", request, code, answer)
				}
			}
			for request, want := range tt.not {
				method, path, _ := strings.Cut(request, " ")
				if code, answer := do(t, method, url+path, ""); code != want {
					t.Errorf("%s: %d %.200s, want %d", request, code, answer, want)
				}
			}
		})
	}
}

// A server that cannot listen says which flag is wrong.
func TestServer_AddressInUse(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	var serving sync.WaitGroup
	defer serving.Wait()
	defer stop()
	url := start(ctx, t, Metrics("--one", "127.0.0.1:0"), &serving)
	if _, err := Metrics("--other", strings.TrimPrefix(url, "http://")).Start(ctx, &serving); err == nil || !strings.HasPrefix(err.Error(), "--other: ") {
		t.Errorf("error %v", err)
	}
}

// The port is closed when the context is done, even if a client keeps its connection.
func TestServer_EndsWithTheContext(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	var serving sync.WaitGroup
	address := strings.TrimPrefix(start(ctx, t, Metrics("--metrics", "127.0.0.1:0"), &serving), "http://")
	dial := func() (net.Conn, error) { return (&net.Dialer{}).DialContext(t.Context(), "tcp", address) }
	open, err := dial()
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	if _, err := io.WriteString(open, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(open)
	response, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, response.Body)
	_ = response.Body.Close()
	stop()
	serving.Wait()
	if c, err := dial(); err == nil {
		_ = c.Close()
		t.Error("the port is open")
	}
	if _, err := in.ReadByte(); err == nil {
		t.Error("the connection is open")
	}
}

// A client in the network can open so many connections and no more.
func TestServer_LimitsConnections(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	var serving sync.WaitGroup
	defer serving.Wait()
	defer stop()
	s := Profiles("--profiles", "127.0.0.1:0")
	address := strings.TrimPrefix(start(ctx, t, s, &serving), "http://")
	ask := func() error { // keeps the connection
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = c.Close() })
		if _, err := io.WriteString(c, "GET /debug/pprof/cmdline HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			return err
		}
		_, err = http.ReadResponse(bufio.NewReader(c), nil) //nolint:bodyclose // the connection is closed at the end
		return err
	}
	for i := range s.connsOfHost {
		if err := ask(); err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
	}
	if ask() == nil {
		t.Error("there are more connections from one host than there may be")
	}
}
