// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/configdep/configdep/test/install"
)

// subject is the program that restarts workloads: the installed server, or another program instead.
type subject interface {
	// start starts the subject and does not wait until it is ready.
	start() error
	// kill kills the subject if it is running.
	kill()
	// ended returns an error if the subject has exited by itself.
	ended() error
	// pid returns the ID of the subject's process, which must be running.
	pid() int
	// user returns the name of the subject's user in the API server.
	user() string
	// annotations returns the annotations by which a workload opts in. An eager workload is to be restarted
	// immediately and without a minimum interval, if the subject supports that.
	annotations(eager bool) map[string]string
}

// installed is the server.
type installed struct{ replica *install.Replica }

func (s installed) start() error { return s.replica.Start() }
func (s installed) kill()        { s.replica.Kill() }
func (s installed) ended() error { return nil }
func (s installed) pid() int     { return s.replica.PID() }

func (s installed) user() string {
	return "system:serviceaccount:" + install.Namespace + ":" + install.Name
}

func (s installed) annotations(eager bool) map[string]string {
	if eager {
		return map[string]string{"configdep.io/reload": "auto", "configdep.io/settle": "0", "configdep.io/min-interval": "0"}
	}
	return map[string]string{"configdep.io/reload": "auto", "configdep.io/settle": "1s"}
}

// external is the program of BENCH_SUBJECT. It has all permissions in the cluster.
type external struct {
	command    string // with arguments, for /bin/sh
	optIn      map[string]string
	kubeconfig string
	log        string // path

	cmd    *exec.Cmd     // nil: not running
	exited chan struct{} // closed when the process has exited
}

// subjectName is the name of all objects that belong to an external subject.
const subjectName = "bench-subject"

func (s *external) start() error {
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("opening the log of the subject: %w", err)
	}
	defer log.Close()
	cmd := exec.CommandContext(context.Background(), "/bin/sh", "-c", "exec "+s.command) // kill ends it
	cmd.Env = append(os.Environ(), "KUBECONFIG="+s.kubeconfig)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting the subject: %w", err)
	}
	exited := make(chan struct{})
	s.cmd, s.exited = cmd, exited
	go func() {
		_ = cmd.Wait()
		close(exited)
	}()
	return nil
}

func (s *external) kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill() // it may have exited already
	<-s.exited
	s.cmd = nil
}

func (s *external) ended() error {
	select {
	case <-s.exited:
	default:
		return nil
	}
	log, _ := os.ReadFile(s.log)
	return fmt.Errorf("the subject has exited: %v; its log ends with:\n%s", s.cmd.ProcessState, log[max(0, len(log)-2000):])
}

func (s *external) pid() int                           { return s.cmd.Process.Pid }
func (s *external) user() string                       { return accountOf(subjectName) }
func (s *external) annotations(bool) map[string]string { return s.optIn }

// pause stops the process of the subject until resume is called, so that it does not disturb other measurements.
func (e *environment) pause() (resume func(), err error) {
	pid := e.subject.pid()
	return func() { _ = syscall.Kill(pid, syscall.SIGCONT) }, syscall.Kill(pid, syscall.SIGSTOP)
}

// restartSubject restarts the subject and returns when it is ready.
func (e *environment) restartSubject(ctx context.Context) error {
	e.subject.kill()
	if err := e.subject.start(); err != nil {
		return err
	}
	if e.install != nil {
		return e.server().AwaitReady(ctx)
	}
	e.restarts++
	_, err := e.play(ctx, fmt.Sprintf("restart-%d", e.restarts), func(*scene) ([]row, error) { return nil, nil })
	return err
}

// servedLimit is how long the aggregator may take to reach the server after a restart.
const servedLimit = 5 * time.Minute

// awaitServed waits until the aggregator forwards requests to the server. Other subjects serve no API.
func (e *environment) awaitServed(ctx context.Context) error {
	if e.install == nil {
		return nil
	}
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
