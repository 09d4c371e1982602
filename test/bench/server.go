// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/configdep/configdep/test/install"
)

// startLimit is how long the server may take to be ready.
const startLimit = 5 * time.Minute

// restartSubject restarts the subject and returns when it is ready.
func (e *environment) restartSubject(ctx context.Context) error {
	if e.install != nil {
		_, err := e.restart(ctx)
		return err
	}
	e.subject.kill()
	if err := e.subject.start(); err != nil {
		return err
	}
	e.restarts++
	_, err := e.play(ctx, fmt.Sprintf("restart-%d", e.restarts), func(*scene) ([]row, error) { return nil, nil })
	return err
}

// restart restarts the server and returns the time from before its process was started until it was ready.
func (e *environment) restart(ctx context.Context) (time.Duration, error) {
	e.server().Kill()
	return e.startOf(ctx, e.server())
}

// startOf starts a stopped replica and returns the time from before its process was started until it was ready.
func (e *environment) startOf(ctx context.Context, r *install.Replica) (time.Duration, error) {
	probe, err := e.newProbe()
	if err != nil {
		return 0, err
	}
	defer probe.CloseIdleConnections()
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("the server was not ready within %v; its log is %s", startLimit, r.Log()))
	defer cancel()
	started := time.Now()
	if err := r.Start(); err != nil {
		return 0, err
	}
	err = poll(ctx, 10*time.Millisecond, func() bool { return isReady(ctx, probe, r) })
	return time.Since(started), err
}

// newProbe returns a client for requests to the server itself, past the aggregator.
func (e *environment) newProbe() (*http.Client, error) {
	ca, err := os.ReadFile(filepath.Join(e.install.Dir(), "ca.crt"))
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return nil, errors.New("the server's ca.crt contains no certificate")
	}
	return &http.Client{
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: install.Name + "." + install.Namespace + ".svc"}},
		Timeout:   5 * time.Second,
	}, nil
}

func isReady(ctx context.Context, probe *http.Client, r *install.Replica) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+r.Address()+"/readyz", nil)
	if err != nil {
		return false
	}
	response, err := probe.Do(request)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body) // otherwise the next probe needs a new connection
	return response.StatusCode == http.StatusOK
}

// awaitServed waits until the aggregator forwards requests to the server, which takes a while after a restart. Other
// subjects serve no API.
func (e *environment) awaitServed(ctx context.Context) error {
	if e.install == nil {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("the aggregator did not reach the server within %v", startLimit))
	defer cancel()
	return poll(ctx, 200*time.Millisecond, func() bool {
		_, err := e.user.read(ctx, request{path: dependencies + "?limit=1"})
		return err == nil
	})
}

// sleep waits for a time or until the context is done.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// poll calls done until it returns true.
func poll(ctx context.Context, every time.Duration, done func() bool) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for !done() {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
	return nil
}

// cpuTime returns the processor time of a process since its start. Linux only.
func cpuTime(pid int) (time.Duration, error) {
	fields, err := statOf(pid)
	if err != nil {
		return 0, fmt.Errorf("reading the processor time of a process: %w", err)
	}
	// The user and system time, in units of 10 ms on all architectures that Go supports.
	user, userErr := strconv.Atoi(fields[11])
	system, systemErr := strconv.Atoi(fields[12])
	return time.Duration(user+system) * time.Second / 100, errors.Join(userErr, systemErr)
}

// statOf returns the fields of a process in /proc, starting with its state. Before that is the name of the program, in
// parentheses, which may contain any character. Linux only.
func statOf(pid int) ([]string, error) {
	path := fmt.Sprintf("/proc/%d/stat", pid)
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	fields := strings.Fields(string(content[bytes.LastIndexByte(content, ')')+1:]))
	if len(fields) < 13 {
		return nil, fmt.Errorf("cannot parse %s", path)
	}
	return fields, nil
}

// memory is the memory of a process, in MB of a million bytes.
type memory struct {
	rss       float64 // now
	anonymous float64 // the part that is not pages of the program's file
	peak      float64 // the maximum since the process was started
}

// memoryOf reads the memory of a process. Linux only.
func memoryOf(pid int) (memory, error) {
	path := fmt.Sprintf("/proc/%d/status", pid)
	content, err := os.ReadFile(path)
	if err != nil {
		return memory{}, fmt.Errorf("reading the memory of a process: %w", err)
	}
	var m memory
	for line := range strings.Lines(string(content)) {
		name, value, _ := strings.Cut(line, ":")
		kilobytes, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 64)
		switch {
		case err != nil:
		case name == "VmRSS":
			m.rss = kilobytes * 1024 / 1e6
		case name == "RssAnon":
			m.anonymous = kilobytes * 1024 / 1e6
		case name == "VmHWM":
			m.peak = kilobytes * 1024 / 1e6
		}
	}
	if m.rss == 0 || m.anonymous == 0 || m.peak == 0 {
		return memory{}, fmt.Errorf("%s lacks VmRSS, RssAnon or VmHWM", path)
	}
	return m, nil
}
