// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"
)

// load sends requests through the aggregator until the context is done. It does not retry: each failure counts.
type load struct {
	requests    atomic.Int64
	undelivered atomic.Int64

	mu       sync.Mutex
	failures map[string]int
}

// undelivered reports whether this is the answer of kube-apiserver to a request with a body that it has sent while
// the server told it to use another connection. The server has not processed the request, and kube-apiserver
// cannot retry it, because it has not kept the body: https://github.com/kubernetes/kubernetes/issues/135285. A
// server cannot prevent that, only send GOAWAY rarely.
func undelivered(r request, code int, body string) bool {
	reason, unreached := strings.CutPrefix(body, "error trying to reach service: ")
	return r.body != "" && code == http.StatusServiceUnavailable && unreached &&
		(strings.HasPrefix(reason, "http2: Transport: cannot retry err [http2: Transport received Server's graceful shutdown GOAWAY]") ||
			strings.HasPrefix(reason, "net/http: cannot rewind body after connection loss"))
}

func (l *load) run(ctx context.Context, client *http.Client, host string, requests []request) {
	for i := 0; ctx.Err() == nil; i++ {
		r := requests[i%len(requests)]
		code, body, err := do(client, host, r)
		l.requests.Add(1)
		switch {
		case err != nil:
			l.fail(fmt.Sprintf("%s: %v", r.method, err))
		case undelivered(r, code, body):
			l.undelivered.Add(1)
		case code != http.StatusOK && code != http.StatusCreated:
			l.fail(fmt.Sprintf("%s: %d: %.200s", r.method, code, body))
		}
	}
}

// do sends a request, which continues when the load ends.
func do(client *http.Client, host string, r request) (code int, body string, err error) {
	made, err := http.NewRequest(r.method, host+r.path, strings.NewReader(r.body))
	if err != nil {
		return 0, "", err
	}
	made.Header = inJSON.Clone()
	response, err := client.Do(made)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	return response.StatusCode, string(raw), err
}

func (l *load) fail(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failures == nil {
		l.failures = map[string]int{}
	}
	l.failures[what]++
}

// An update of the server restarts its replicas one after the other, and no client notices.
func TestRollingRestart(t *testing.T) {
	// Not parallel: the replicas are restarted for all.
	namespace := sharing(t)
	all := resourcePath(namespace)
	requests := []request{
		{method: http.MethodGet, path: all + "/deployment.web"},
		{method: http.MethodGet, path: all},
		{http.MethodPost, all + "/deployment.web/reload?dryRun=All", inJSON, `{"spec":{"reason":"load"}}`},
		{method: http.MethodGet, path: apiPath + "/configdependencies?fieldSelector=source%3DSecret/db"},
	}
	// With fewer requests, a test on a slow machine would prove nothing.
	const enough, workers = 500, 6
	var l load
	ctx, stop := context.WithCancel(t.Context())
	var working sync.WaitGroup
	for range workers {
		client, err := rest.HTTPClientFor(cluster.RESTConfig())
		if err != nil {
			t.Fatal(err)
		}
		working.Go(func() { l.run(ctx, client, cluster.RESTConfig().Host, requests) })
	}
	restarts := 0
	for restarts == 0 || l.requests.Load() < enough {
		for _, r := range server.Replicas {
			if err := r.Terminate(); err != nil {
				t.Errorf("%s did not stop in order: %v", r.Name(), err)
			}
			restart(t, r)
			restarts++
		}
	}
	stop()
	working.Wait()
	for what, times := range l.failures {
		t.Errorf("%d times: %s", times, what)
	}
	t.Logf("%d requests, %d of them not delivered", l.requests.Load(), l.undelivered.Load())
	// One GOAWAY for each restart, when each worker has one request in flight.
	if most := int64(restarts * workers); l.undelivered.Load() > most {
		t.Errorf("more than %d requests were not delivered: the server sends GOAWAY too often", most)
	}
}
