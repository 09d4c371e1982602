// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package restarter lets a pod restart all its containers in place when an annotation of it says so.
//
// It runs in a sidecar whose restartPolicyRules have the action RestartAllContainers for one exit code: when it ends with that code, the
// kubelet restarts all containers of the pod, which keeps its address, its node and its volumes. It sees the annotation in a volume of the
// downward API, and needs neither the API server nor a token.
//
// The kubelet's restart is not graceful: hooks are not called, and processes are killed after two seconds. So the restarter first lets the
// pod drain: it is not ready, so that the endpoints of Services lose the pod, it may call the application or run a command, and it waits.
package restarter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/configdep/configdep/pkg/agent/action"
	"github.com/configdep/configdep/pkg/agent/notify"
)

// ExitCode is the code with which the restarter ends by default so that all containers restart. No signal and no shell uses it.
const ExitCode = 88

// maxValue is how much of the file is read. The server writes less.
const maxValue = 4096

// Config is what a restarter does.
type Config struct {
	// File has the value of the annotation, in a volume of the downward API. It may be missing, as the annotation may.
	File string
	// Poll is how often the file is read if no notification comes.
	Poll time.Duration
	// MinUptime is the minimum time that the restarter runs before it lets the containers restart. It bounds how often they restart,
	// because the kubelet does not wait between such restarts.
	MinUptime time.Duration
	// Unready is for how long the pod is not ready before the containers restart, so that no requests come meanwhile.
	Unready time.Duration
	// Drain is done before that time, if it is not nil.
	Drain action.Action
}

// Restarter watches the annotation.
type Restarter struct {
	config Config

	mu    sync.Mutex
	state State
}

// State is what a restarter is about to do.
type State string

// The states.
const (
	Starting State = "starting" // the annotation has not been read
	Waiting  State = "waiting"  // for a change of the annotation
	Held     State = "held"     // a restart is due, and too early
	Draining State = "draining" // before the restart
)

// New returns a restarter.
func New(c Config) *Restarter { return &Restarter{config: c, state: Starting} }

// State returns what the restarter is about to do.
func (r *Restarter) State() State {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state
}

func (r *Restarter) set(s State) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state = s
}

// Run returns nil once all containers shall restart, or the cause of the end of the context.
//
// What the annotation says at the start has been done: the containers start after the restarter, and so read what was there when it was
// written.
func (r *Restarter) Run(ctx context.Context) error {
	started := time.Now()
	logger := klog.FromContext(ctx)
	notified, stop := notify.Directory(filepath.Dir(r.config.File))
	defer stop()
	done, err := r.read()
	if err != nil {
		return err
	}
	r.set(Waiting)
	if done != "" {
		logger.Info("The containers have started after the restart that the annotation asks for", "value", done)
	}
	poll := time.NewTicker(r.config.Poll)
	defer poll.Stop()
	for {
		select {
		case <-notified:
		case <-poll.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		value, err := r.read()
		switch {
		case err != nil:
			logger.Error(err, "The annotation cannot be read, will retry")
			continue
		case value == done:
			continue
		case value == "":
			done = "" // removed: the next value is a new one, whatever it is
			continue
		}
		logger.Info("All containers of the pod are going to restart", "value", value)
		if early := r.config.MinUptime - time.Since(started); early > 0 {
			logger.Info("The restart waits, because the containers have just started", "for", early.Round(time.Second))
			r.set(Held)
			if err := sleep(ctx, early); err != nil {
				return err
			}
			if now, err := r.read(); err == nil && (now == done || now == "") {
				logger.Info("The annotation has been set back, so nothing restarts")
				done = now
				r.set(Waiting)
				continue
			}
		}
		return r.drain(ctx)
	}
}

// drain lets the pod drain.
func (r *Restarter) drain(ctx context.Context) error {
	r.set(Draining)
	if r.config.Drain != nil {
		if err := r.config.Drain.Do(ctx); err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			klog.FromContext(ctx).Error(err, "Draining has failed; the containers restart all the same")
		}
	}
	return sleep(ctx, r.config.Unready)
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// read returns the value of the annotation, "" if there is none.
func (r *Restarter) read() (string, error) {
	f, err := os.Open(r.config.File)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxValue+1))
	if err != nil {
		return "", err
	}
	if len(text) > maxValue {
		return "", fmt.Errorf("%s has more than %d bytes: it must have the value of one annotation", r.config.File, maxValue)
	}
	return strings.TrimSpace(string(text)), nil
}

// Handler serves /startupz, /livez and /readyz. With a startup probe, the other containers start once the annotation has been read, so that
// they cannot be older than what it said then. The readiness of the sidecar is part of the pod's.
func (r *Restarter) Handler() http.Handler {
	mux := http.NewServeMux()
	ok := func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") }
	mux.HandleFunc("GET /startupz", func(w http.ResponseWriter, q *http.Request) {
		if r.State() == Starting {
			http.Error(w, "the annotation has not been read yet", http.StatusServiceUnavailable)
			return
		}
		ok(w, q)
	})
	mux.HandleFunc("GET /livez", ok)
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, q *http.Request) {
		if r.State() == Draining {
			http.Error(w, "all containers of the pod are about to restart", http.StatusServiceUnavailable)
			return
		}
		ok(w, q)
	})
	return mux
}
