// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/notify"
	"github.com/configdep/configdep/pkg/notify/webhook"
)

type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

// stuck answers no request.
func stuck(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// A destination that does not answer delays neither restarts nor other destinations, and the shutdown only for a limited
// time, however many there are.
func TestNotifications_StuckDestinationsDelayNothing(t *testing.T) {
	for name, tt := range map[string]struct {
		transports []transport
		took       time.Duration
	}{
		"none":      {nil, 0},
		"two stuck": {[]transport{stuck, stuck}, notificationDrain},
		"none left": {[]transport{delivered(new(atomic.Int32))}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var received atomic.Int32
				var configs []webhook.Config
				for i, transport := range append(tt.transports, delivered(&received)) {
					configs = append(configs, webhook.Config{
						Name: string(rune('a' + i)), URL: "https://chat.example.com", Format: webhook.Generic, Transport: transport,
					})
				}
				n, err := newNotifications(configs)
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				stop := n.start(ctx)
				started := time.Now()
				for range 100 {
					for _, sink := range n {
						sink.Notify(notify.Event{What: notify.Restarted, Workload: dependency.WorkloadKey{Kind: "Deployment", Namespace: "shop", Name: "web"}})
					}
				}
				if took := time.Since(started); took != 0 {
					t.Errorf("restarts were delayed by %v", took)
				}
				cancel() // while the server drains, events are sent
				synctest.Wait()
				if got := received.Load(); got != 100 {
					t.Errorf("another destination received %d events, want 100", got)
				}
				stopped := time.Now()
				stop()
				if took := time.Since(stopped); took != tt.took {
					t.Errorf("the shutdown took %v, want %v", took, tt.took)
				}
			})
		})
	}
}

// delivered counts requests, and answers them at once.
func delivered(n *atomic.Int32) transport {
	return func(r *http.Request) (*http.Response, error) {
		n.Add(1)
		return &http.Response{StatusCode: http.StatusAccepted, Body: http.NoBody, Request: r}, nil
	}
}

// A counter that begins with the first loss would hide it: only an increase is seen.
func TestNewNotifications_CountsFromZero(t *testing.T) {
	if _, err := newNotifications([]webhook.Config{{Name: "from-zero", URL: "https://chat.example.com", Format: webhook.Generic}}); err != nil {
		t.Fatal(err)
	}
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "configdep_notifications_total" && m.GetLabel()[0].GetValue() == "from-zero" {
				return
			}
		}
	}
	t.Error("the destination has no counters")
}
