// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/metrics"
	"github.com/configdep/configdep/pkg/notify"
)

// No goroutine of this package may outlive its context.
func TestMain(m *testing.M) {
	metrics.Register()
	goleak.VerifyTestMain(m)
}

// Each part of this URL, and the key, is a secret.
const (
	secretPath = "/services/s3cret-path"
	secretURL  = "https://s3cret-user:s3cret-password@chat.example.com" + secretPath + "?token=s3cret-query"
	secretKey  = "s3cret-key"
)

// noSecrets fails the test if a text contains a part of the URL or the key.
func noSecrets(t *testing.T, text string) {
	t.Helper()
	if strings.Contains(text, "s3cret") || strings.Contains(text, "https://") {
		t.Errorf("text contains a secret:\n%s", text)
	}
}

func restarted(name string) notify.Event {
	return notify.Event{
		What: notify.Restarted, Workload: dependency.WorkloadKey{Kind: "Deployment", Namespace: "shop", Name: name},
		UID: "5f0b1c1e-0000-4000-8000-000000000001", Message: "Restarted because Secret/db has changed", Trigger: "Secret/db",
		At: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
	}
}

// mustNew returns a sink, with the format generic unless the configuration has another.
func mustNew(t *testing.T, c Config) *Sink {
	t.Helper()
	if c.Name == "" {
		c.Name = "oncall"
	}
	if c.URL == "" {
		c.URL = secretURL
	}
	if c.Format == "" {
		c.Format = Generic
	}
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// logs returns a context with a logger, and what it logs. No line may contain a secret.
func logs(t *testing.T) (context.Context, func() string) {
	t.Helper()
	logger := ktesting.NewLogger(ktesting.NopTL{}, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(10)))
	text := logger.GetSink().(ktesting.Underlier).GetBuffer().String
	t.Cleanup(func() { noSecrets(t, text()) })
	return klog.NewContext(t.Context(), logger), text
}

// counting returns a function that returns how many events each result has had since, without those that have had none.
func counting(t *testing.T) func() map[string]int {
	t.Helper()
	before := counts(t)
	return func() map[string]int {
		t.Helper()
		got := map[string]int{}
		for result, n := range counts(t) {
			if n != before[result] {
				got[result] = n - before[result]
			}
		}
		return got
	}
}

func counts(t *testing.T) map[string]int {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for _, f := range families {
		if f.GetName() != "configdep_notifications_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			noSecrets(t, m.String())
			for _, l := range m.GetLabel() {
				if l.GetName() == "result" {
					got[l.GetValue()] += int(m.GetCounter().GetValue())
				}
			}
		}
	}
	return got
}

// request is a request that a destination has received.
type request struct {
	at     time.Time
	header http.Header
	body   []byte
	url    string
}

// destination is a transport that needs no network, so that it works with the clocks of synctest.
type destination struct {
	mu       sync.Mutex
	requests []request
	// answer returns the response to the nth request, from 1.
	answer func(n int, r *http.Request) (*http.Response, error)
}

func (d *destination) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	d.requests = append(d.requests, request{time.Now(), r.Header, body, r.URL.String()})
	n := len(d.requests)
	d.mu.Unlock()
	return d.answer(n, r)
}

func (d *destination) received() []request {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.requests
}

// status returns a response whose texts repeat the URL, as some servers do.
func status(code int, r *http.Request, header ...string) (*http.Response, error) {
	resp := &http.Response{
		StatusCode: code, Status: r.URL.String(), Header: http.Header{"Location": {r.URL.String()}},
		Body: io.NopCloser(bytes.NewReader([]byte(r.URL.String()))), Request: r,
	}
	for i := 0; i < len(header); i += 2 {
		resp.Header.Set(header[i], header[i+1])
	}
	return resp, nil
}

// statuses answers with each code in turn, and with the last one from then on.
func statuses(codes ...int) *destination {
	return &destination{answer: func(n int, r *http.Request) (*http.Response, error) {
		return status(codes[min(n, len(codes))-1], r)
	}}
}

var errTransport = errors.New("connecting to " + secretURL)

// hanging answers no request.
func hanging() *destination {
	return &destination{answer: func(_ int, r *http.Request) (*http.Response, error) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}}
}
