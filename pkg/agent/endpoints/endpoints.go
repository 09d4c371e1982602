// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package endpoints serves the probes and the metrics of an agent.
package endpoints

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/configdep/configdep/pkg/agent"
	"github.com/configdep/configdep/pkg/agent/source"
)

// Stuck is for how long a source may make no progress: a watch that works receives a bookmark about every minute, one that fails is begun
// again every half a minute, and volumes are read again and again.
const Stuck = 10 * time.Minute

// Agent is what is served.
type Agent interface {
	Status() agent.Status
	Health() []source.Health
}

// Handler returns the handler of /startupz, /livez, /readyz and /metrics.
func Handler(a Agent, now func() time.Time) http.Handler {
	mux := http.NewServeMux()
	probe := func(path string, check func() error) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			if err := check(); err != nil {
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
				return
			}
			_, _ = fmt.Fprintln(w, "ok")
		})
	}
	probe("/startupz", func() error {
		if s := a.Status(); !s.Started {
			return why(&s, "the first files are not there yet")
		}
		return nil
	})
	probe("/livez", func() error { return live(a, now()) })
	probe("/readyz", func() error {
		if s := a.Status(); !s.InSync() {
			return why(&s, "new content is being applied")
		}
		return nil
	})
	registry := prometheus.NewRegistry()
	registry.MustRegister(&collector{a, now})
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 3}))
	return mux
}

// why returns why an agent is not in sync.
func why(s *agent.Status, otherwise string) error {
	switch {
	case s.Unread != nil:
		return s.Unread
	case s.Failure != nil && s.RolledBack:
		return fmt.Errorf("%w; the files that were applied last are back", s.Failure)
	case s.Failure != nil:
		return s.Failure
	}
	return errors.New(otherwise)
}

// live returns an error if a source is stuck, which a restart of the agent may change. It is none that the API server does not answer:
// then requests fail, again and again.
func live(a Agent, now time.Time) error {
	var errs []error
	for i, h := range a.Health() {
		if idle := now.Sub(h.Progress); !h.Progress.IsZero() && idle > Stuck {
			errs = append(errs, fmt.Errorf("source %d has made no progress for %v", i+1, idle.Round(time.Second)))
		}
	}
	return errors.Join(errs...)
}

// Serve serves a handler until the context ends.
func Serve(ctx context.Context, listener net.Listener, h http.Handler) error {
	s := &http.Server{Handler: h, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10}
	stop := context.AfterFunc(ctx, func() { _ = s.Close() })
	defer stop()
	if err := s.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

var (
	infoDesc = prometheus.NewDesc("configdep_agent_content_info",
		"1, with digests of the content that is wanted and of the content that is applied. They can be compared within this process alone.", []string{"wanted", "applied"}, nil)
	syncDesc = prometheus.NewDesc("configdep_agent_in_sync",
		"1 if the application works with the content that the sources have; 0 if not.", nil, nil)
	rolledBackDesc = prometheus.NewDesc("configdep_agent_rolled_back",
		"1 if older files came back because the application did not reload; 0 if not.", nil, nil)
	appliedDesc = prometheus.NewDesc("configdep_agent_last_applied_timestamp_seconds",
		"When content was applied last, in seconds since the epoch.", nil, nil)
	successesDesc = prometheus.NewDesc("configdep_agent_applied_total", "How often content has been applied.", nil, nil)
	failuresDesc  = prometheus.NewDesc("configdep_agent_failures_total",
		"How often a step has failed: write, check, reload, probe or rollback.", []string{"step"}, nil)
	heardDesc = prometheus.NewDesc("configdep_agent_source_last_heard_timestamp_seconds",
		"When something was last received from the source that was heard of the longest ago, in seconds since the epoch.", nil, nil)
	readDesc = prometheus.NewDesc("configdep_agent_sources_complete",
		"1 if all required sources exist and can be read; 0 if not.", nil, nil)
)

type collector struct {
	agent Agent
	now   func() time.Time
}

func (c *collector) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

func (c *collector) Collect(ch chan<- prometheus.Metric) {
	s := c.agent.Status()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(infoDesc, 1, s.Wanted, s.Applied)
	gauge(syncDesc, one(s.InSync()))
	gauge(rolledBackDesc, one(s.RolledBack))
	gauge(readDesc, one(s.Started && s.Unread == nil))
	if !s.AppliedAt.IsZero() {
		gauge(appliedDesc, float64(s.AppliedAt.UnixNano())/1e9)
	}
	ch <- prometheus.MustNewConstMetric(successesDesc, prometheus.CounterValue, float64(s.Successes))
	for _, step := range agent.Steps {
		ch <- prometheus.MustNewConstMetric(failuresDesc, prometheus.CounterValue, float64(s.Failures[step]), string(step))
	}
	var oldest time.Time
	for _, h := range c.agent.Health() {
		if oldest.IsZero() || h.Heard.Before(oldest) {
			oldest = h.Heard
		}
	}
	if !oldest.IsZero() {
		gauge(heardDesc, float64(oldest.UnixNano())/1e9)
	}
}

func one(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
