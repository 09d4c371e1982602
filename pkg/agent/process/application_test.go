// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A restart ends one process before it starts the next, which has the new environment, and is not the end of the application.
func TestRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	n := 0
	a := NewApplication([]string{"sh", "-c", `trap 'echo "$N ends" >> log; exit' TERM; echo "$N starts" >> log; while :; do sleep 0.01; done`},
		func() []string { n++; return append(os.Environ(), "N="+strconv.Itoa(n)) }, limit)
	a.Command[2] = "cd " + dir + "; " + a.Command[2]
	if err := a.Restart(t.Context(), 0); !errors.Is(err, ErrEnding) {
		t.Errorf("restarted before the start: %v", err)
	}
	awaitLog := func(want string) {
		t.Helper()
		await(t, "the log is "+want, func() bool {
			log, _ := os.ReadFile(filepath.Join(dir, "log"))
			return string(log) == want
		})
	}
	if err := a.Start(); err != nil {
		t.Fatal(err)
	}
	awaitLog("1 starts\n")
	if err := a.Restart(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	awaitLog("1 starts\n1 ends\n2 starts\n")
	select {
	case e := <-a.Ended():
		t.Errorf("a restart counts as the end: %v", e)
	default:
	}
	if err := a.Stop(); err != nil {
		t.Fatal(err)
	}
	if e := receive(t, a.Ended()); e.Status() != 0 {
		t.Errorf("ended with %v", e)
	}
	awaitLog("1 starts\n1 ends\n2 starts\n2 ends\n")
	if err := a.Restart(t.Context(), 0); !errors.Is(err, ErrEnding) {
		t.Errorf("restarted after the end: %v", err)
	}
	if err := a.Start(); !errors.Is(err, ErrEnding) {
		t.Errorf("started after the end: %v", err)
	}
}

// An application that cannot be started again ends when that is said.
func TestRestartFails(t *testing.T) {
	t.Parallel()
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "sleep")
	if err := os.Symlink(sleep, program); err != nil { // not a script, whose shell would open it at any time after the start
		t.Fatal(err)
	}
	a := NewApplication([]string{program, "1000"}, nil, limit)
	if err := a.Start(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(program); err != nil {
		t.Fatal(err)
	}
	if err := a.Restart(t.Context(), 0); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	select {
	case e := <-a.Ended():
		t.Errorf("ended with %v, though it may be tried again", e)
	default:
	}
	a.GiveUp()
	if e := receive(t, a.Ended()); e.Signal != unix.SIGTERM {
		t.Errorf("ended with %v", e)
	}
}

// Every signal with which containers are stopped ends the agent while there is no application.
func TestForward_BeforeTheStart(t *testing.T) {
	t.Parallel()
	for _, s := range []syscall.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGQUIT, unix.SIGUSR1} {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			c := parent(t, "1m", "")
			c.Env = append(os.Environ(), roleVariable+"=early")
			start(t, c)
			if err := c.Process.Signal(s); err != nil {
				t.Fatal(err)
			}
			_ = c.Wait()
			if c.ProcessState.ExitCode() != 5 {
				t.Errorf("%v, want exit code 5", c.ProcessState)
			}
		})
	}
}

// An application that ends right after its restart may be started again.
func TestRestartDies(t *testing.T) {
	t.Parallel()
	n := 0
	a := NewApplication([]string{"sh", "-c", `[ "$N" = 2 ] && exit 3; while :; do sleep 0.01; done`},
		func() []string { n++; return append(os.Environ(), "N="+strconv.Itoa(n)) }, limit)
	if err := a.Start(); err != nil {
		t.Fatal(err)
	}
	if err := a.Restart(t.Context(), limit); err == nil || !strings.Contains(err.Error(), "exit code 3") {
		t.Errorf("the second one: %v", err)
	}
	if err := a.Restart(t.Context(), 10*time.Millisecond); err != nil {
		t.Errorf("the third one: %v", err)
	}
	select {
	case e := <-a.Ended():
		t.Errorf("ended with %v", e)
	default:
	}
	if err := a.Stop(); err != nil {
		t.Fatal(err)
	}
	if e := receive(t, a.Ended()); e.Signal != unix.SIGTERM {
		t.Errorf("ended with %v", e)
	}
}

func forward(t *testing.T, a *Application, s os.Signal) {
	t.Helper()
	if err := a.forward(s); err != nil {
		t.Error(err)
	}
}

// script starts an application of a shell script, which appends to the file log of a directory, and has the number of its start as N.
func script(t *testing.T, dir string, grace time.Duration, text string) (a *Application, awaitLog func(want string)) {
	t.Helper()
	n := 0
	a = NewApplication([]string{"sh", "-c", "cd " + dir + "; " + text}, func() []string { n++; return append(os.Environ(), "N="+strconv.Itoa(n)) }, grace)
	if err := a.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Stop() })
	return a, func(want string) {
		t.Helper()
		await(t, "the log is "+want, func() bool {
			log, _ := os.ReadFile(filepath.Join(dir, "log"))
			return string(log) == want
		})
	}
}

const forever = "while :; do sleep 0.01; done"

// A signal with which containers are stopped ends the application also if it comes while a restart stops the old child: the new one would
// not get it.
func TestForward_WhileTheOldChildStops(t *testing.T) {
	t.Parallel()
	for _, s := range []syscall.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGQUIT} {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			a, awaitLog := script(t, dir, limit, `trap '' INT QUIT; trap 'trap "" TERM; echo ends >> log; while [ ! -e go ]; do sleep 0.01; done; exit 7' TERM;
				echo starts >> log; `+forever)
			awaitLog("starts\n")
			restarted := make(chan error, 1)
			go func() { restarted <- a.Restart(t.Context(), 0) }()
			awaitLog("starts\nends\n")
			forward(t, a, s)
			if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := receive(t, restarted); !errors.Is(err, ErrEnding) {
				t.Errorf("restarted: %v", err)
			}
			if e := receive(t, a.Ended()); e.Status() != 7 {
				t.Errorf("ended with %v", e)
			}
			awaitLog("starts\nends\n")
		})
	}
}

// The new child gets such a signal, and its end is the end of the application, though it is on trial.
func TestForward_WhileTheNewChildIsOnTrial(t *testing.T) {
	t.Parallel()
	for _, s := range []syscall.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGQUIT} {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			a, awaitLog := script(t, t.TempDir(), limit, `echo $N >> log; `+forever)
			awaitLog("1\n")
			restarted := make(chan error, 1)
			go func() { restarted <- a.Restart(t.Context(), limit) }()
			awaitLog("1\n2\n")
			forward(t, a, s)
			if err := receive(t, restarted); err == nil {
				t.Error("restarted")
			}
			if e := receive(t, a.Ended()); e.Signal != s {
				t.Errorf("ended with %v", e)
			}
		})
	}
}

// While a restart that failed waits for its next try, no child could get such a signal.
func TestForward_WhileNoChildRuns(t *testing.T) {
	t.Parallel()
	for _, s := range []syscall.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGQUIT} {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			a, awaitLog := script(t, t.TempDir(), limit, `echo $N >> log; [ "$N" = 2 ] && exit 3; `+forever)
			awaitLog("1\n")
			if err := a.Restart(t.Context(), limit); err == nil || errors.Is(err, ErrEnding) {
				t.Fatalf("restarted: %v", err)
			}
			forward(t, a, unix.SIGHUP) // this is no signal to end
			select {
			case e := <-a.Ended():
				t.Errorf("ended with %v", e)
			default:
			}
			forward(t, a, s)
			if e := receive(t, a.Ended()); e.Status() != 3 {
				t.Errorf("ended with %v", e)
			}
			if err := a.Restart(t.Context(), 0); !errors.Is(err, ErrEnding) {
				t.Errorf("restarted: %v", err)
			}
		})
	}
}

// A child that takes its time to end after such a signal is not replaced by one that has not got it.
func TestForward_BeforeARestart(t *testing.T) {
	t.Parallel()
	a, awaitLog := script(t, t.TempDir(), limit, `trap 'echo asked >> log; sleep 0.5; exit 7' INT; echo $N >> log; `+forever)
	awaitLog("1\n")
	forward(t, a, unix.SIGINT)
	awaitLog("1\nasked\n")
	if err := a.Restart(t.Context(), 0); !errors.Is(err, ErrEnding) {
		t.Errorf("restarted: %v", err)
	}
	if e := receive(t, a.Ended()); e.Status() != 7 {
		t.Errorf("ended with %v", e)
	}
	awaitLog("1\nasked\n")
}

// For some applications such a signal has another meaning: they go on, and are restarted later.
func TestForward_ToAnApplicationThatGoesOn(t *testing.T) {
	t.Parallel()
	a, awaitLog := script(t, t.TempDir(), 100*time.Millisecond, `trap 'echo dump >> log' QUIT; echo $N >> log; `+forever)
	awaitLog("1\n")
	forward(t, a, unix.SIGQUIT)
	awaitLog("1\ndump\n")
	if err := a.Restart(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	awaitLog("1\ndump\n2\n")
	forward(t, a, unix.SIGQUIT)
	awaitLog("1\ndump\n2\ndump\n")
	if err := a.Restart(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	awaitLog("1\ndump\n2\ndump\n3\n")
}
