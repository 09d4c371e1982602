// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package endpoints serves the probes and the metrics of an agent.
package endpoints

import (
	"errors"
	"fmt"
	"net/http"
	"time"

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

// Handler returns the handler of /startupz, /livez, /readyz and /metrics. Every client in the pod network can read the answers, so they name
// sources, files, commands and URLs only with names.
func Handler(a Agent, names bool, now func() time.Time) http.Handler {
	mux := http.NewServeMux()
	probe := func(path string, check func() error) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			if err := check(); err != nil {
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
				return
			}
			text := "ok"
			if s := a.Status(); path == "/readyz" {
				text += leftOut(&s, names)
			}
			_, _ = fmt.Fprintln(w, text)
		})
	}
	probe("/startupz", func() error {
		if s := a.Status(); !s.Started {
			return why(&s, names, "the first files are not there yet")
		}
		return nil
	})
	probe("/livez", func() error { return live(a, now()) })
	probe("/readyz", func() error {
		if s := a.Status(); !s.InSync() {
			return why(&s, names, "new content is being applied")
		}
		return nil
	})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		writeMetrics(w, a, names)
	})
	return mux
}

// leftOut returns what the application does without, although the agent is in sync.
func leftOut(s *agent.Status, names bool) string {
	switch n := len(s.Rejected); {
	case n == 0:
		return ""
	case names:
		return "; " + source.Rejections(s.Rejected)
	case n == 1:
		return "; an object of a selector is left out; the log names it"
	default:
		return fmt.Sprintf("; %d objects of selectors are left out; the log names them", n)
	}
}

// why returns why an agent is not in sync.
func why(s *agent.Status, names bool, otherwise string) error {
	var err error
	switch {
	case s.Unread != nil && names:
		return s.Unread
	case s.Unread != nil:
		return errors.New("a source is missing or cannot be read; the log names it")
	case s.Failure != nil && names:
		err = s.Failure
	case s.Failure != nil:
		err = fmt.Errorf("%s failed; the log says why", s.Failure.Step)
	default:
		return errors.New(otherwise)
	}
	if s.RolledBack {
		return fmt.Errorf("%w; the files that were applied last are back", err)
	}
	return err
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
