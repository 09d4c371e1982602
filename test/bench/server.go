// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/configdep/configdep/test/install"
)

// user is the server's user in the API server.
const user = "system:serviceaccount:" + install.Namespace + ":" + install.Name

// optInBy returns the annotations by which a workload opts in. An eager workload is restarted immediately and without a minimum interval.
func optInBy(eager bool) map[string]string {
	if eager {
		return map[string]string{"configdep.io/reload": "auto", "configdep.io/settle": "0", "configdep.io/min-interval": "0"}
	}
	return map[string]string{"configdep.io/reload": "auto", "configdep.io/settle": "1s"}
}

// pause stops the process of the server until resume is called, so that it does not disturb other measurements.
func (e *environment) pause() (resume func(), err error) {
	pid := e.server().PID()
	return func() { _ = syscall.Kill(pid, syscall.SIGCONT) }, syscall.Kill(pid, syscall.SIGSTOP)
}

// servedLimit is how long the aggregator may take to reach the server after a restart.
const servedLimit = 5 * time.Minute

// awaitServed waits until the aggregator forwards requests to the server.
func (e *environment) awaitServed(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, servedLimit, fmt.Errorf("the aggregator did not reach the server within %v", servedLimit))
	defer cancel()
	return poll(ctx, 200*time.Millisecond, func() bool {
		return e.client.CoreV1().RESTClient().Get().AbsPath(dependencies).Param("limit", "1").Do(ctx).Error() == nil
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
	for !done() {
		if err := sleep(ctx, every); err != nil {
			return err
		}
	}
	return nil
}

// cpuTime returns the processor time of a process since its start. Linux only.
func cpuTime(pid int) (time.Duration, error) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("reading the processor time of a process: %w", err)
	}
	// Before its state is the name of the program, in parentheses, which may contain any character.
	fields := strings.Fields(string(content[bytes.LastIndexByte(content, ')')+1:]))
	if len(fields) < 13 {
		return 0, fmt.Errorf("cannot parse /proc/%d/stat", pid)
	}
	// The user and system time, in units of 10 ms on all architectures that Go supports.
	user, userErr := strconv.Atoi(fields[11])
	system, systemErr := strconv.Atoi(fields[12])
	return time.Duration(user+system) * time.Second / 100, errors.Join(userErr, systemErr)
}

// memory is the memory of a process, in MB of a million bytes.
type memory struct {
	rss  float64 // now
	peak float64 // the maximum since the process was started
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
		case name == "VmHWM":
			m.peak = kilobytes * 1024 / 1e6
		}
	}
	if m.rss == 0 || m.peak == 0 {
		return memory{}, fmt.Errorf("%s lacks VmRSS or VmHWM", path)
	}
	return m, nil
}
