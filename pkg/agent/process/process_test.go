// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	limit = 5 * time.Minute
	// The test program does what this variable says, instead of running tests.
	roleVariable = "PROCESS_TEST_ROLE"
)

func TestMain(m *testing.M) {
	switch role, argument, _ := strings.Cut(os.Getenv(roleVariable), " "); role {
	case "":
		if signal.Ignored(unix.SIGINT) { // as a script's job in the background, whose children would ignore it, too
			signal.Notify(make(chan os.Signal, 1), unix.SIGINT)
		}
		os.Exit(m.Run())
	case "parent": // as the agent is: it runs the rest of its arguments
		os.Exit(beParent(argument))
	case "stranger":
		beStranger()
	case "early": // as the agent is before it starts an application
		time.AfterFunc(limit, func() { os.Exit(1) })
		run := NewApplication([]string{"true"}, nil, limit).Forward(context.Background(), func() { os.Exit(5) })
		fmt.Println("ready")
		run()
	case "stubborn": // it ignores SIGTERM
		time.AfterFunc(limit, func() { os.Exit(1) })
		signal.Ignore(unix.SIGTERM)
		fmt.Println("ready")
		<-context.Background().Done() // the timer keeps the runtime from giving up
	case "echo": // it tells which signals it gets
		time.AfterFunc(limit, func() { os.Exit(1) })
		signals := make(chan os.Signal, 100)
		signal.Notify(signals)
		fmt.Println("ready")
		for s := range signals {
			if s != unix.SIGURG {
				fmt.Println(int(s.(syscall.Signal)))
			}
			if s == unix.SIGTERM {
				os.Exit(7)
			}
		}
	}
}

func beParent(grace string) int {
	d, err := time.ParseDuration(grace)
	if err != nil {
		panic(err)
	}
	// Orphans of its descendants become its children, as they do anyway if it is the first process of a container.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go Reap(ctx)
	a := NewApplication(os.Args[1:], func() []string { return append(os.Environ(), roleVariable+"="+os.Getenv("CHILD_ROLE")) }, d)
	go a.Forward(ctx, cancel)()
	if err := a.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 127
	}
	if n, _ := strconv.Atoi(os.Getenv("COMMANDS")); n > 0 {
		for range n {
			if err := Run(ctx, nil, nil, "sh", "-c", "(true & true & true &); exit 0"); err != nil {
				panic(err)
			}
			// Nothing else would wait for what is left now.
			if err := wait.PollUntilContextTimeout(ctx, time.Millisecond, limit, true, func(context.Context) (bool, error) {
				var info siginfo
				return peek(&info) == nil && info.pid == 0, nil
			}); err != nil {
				fmt.Println("zombies are left")
			}
		}
		fmt.Println("no zombie is left")
	}
	return (<-a.Ended()).Status()
}

// parent returns a command that runs another as the agent does.
func parent(t *testing.T, grace, childRole string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if len(args) == 0 {
		args = []string{self}
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	c := exec.CommandContext(ctx, self, args...)
	c.Env = append(os.Environ(), roleVariable+"=parent "+grace, "CHILD_ROLE="+childRole)
	c.Stderr = os.Stderr
	c.WaitDelay = time.Second // its children may have its output
	return c
}

func TestExitCodes(t *testing.T) {
	for script, want := range map[string]int{
		"exit 0":        0,
		"exit 3":        3,
		"exit 255":      255,
		"kill -TERM $$": 128 + 15,
		"kill -KILL $$": 128 + 9,
		"kill -SEGV $$": 128 + 11,
	} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			c := parent(t, "1m", "", "sh", "-c", script)
			if err := c.Run(); c.ProcessState == nil || c.ProcessState.ExitCode() != want {
				t.Errorf("%v, want exit code %d", err, want)
			}
		})
	}
	c := parent(t, "1m", "", "/no/such/program")
	c.Stderr = nil
	if _ = c.Run(); c.ProcessState.ExitCode() != 127 {
		t.Errorf("a program that does not exist: %v", c.ProcessState)
	}
}

// Standard input, output and error are the child's own.
func TestStandardStreams(t *testing.T) {
	t.Parallel()
	c := parent(t, "1m", "", "sh", "-c", "cat; echo error >&2")
	c.Stdin = strings.NewReader("hello\n")
	var errs strings.Builder
	c.Stderr = &errs
	c.WaitDelay = limit // a busy machine takes its time to copy them, and other children may have them until they run their own program
	out, err := c.Output()
	if err != nil || string(out) != "hello\n" || errs.String() != "error\n" {
		t.Errorf("output %q, error output %q, %v", out, errs.String(), err)
	}
	// However much it is, and the parent keeps none of it.
	c = parent(t, "1m", "", "sh", "-c", "head -c 200000000 /dev/zero")
	pipe, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	n, err := io.Copy(io.Discard, pipe)
	if err = errors.Join(err, c.Wait()); err != nil || n != 200_000_000 {
		t.Errorf("%d bytes, %v", n, err)
	}
	if kib := c.ProcessState.SysUsage().(*syscall.Rusage).Maxrss; kib > 100<<10 {
		t.Errorf("the parent or its child used %d KiB", kib)
	}
}

func awaitLine(t *testing.T, lines *bufio.Scanner, want string) {
	t.Helper()
	if !lines.Scan() || lines.Text() != want {
		t.Fatalf("got %q, %v, want %q", lines.Text(), lines.Err(), want)
	}
}

// start starts a command, and waits until its child is ready.
func start(t *testing.T, c *exec.Cmd) *bufio.Scanner {
	t.Helper()
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	awaitLine(t, lines, "ready")
	return lines
}

// The child gets each signal that its parent gets, and only those.
func TestSignalsAreForwarded(t *testing.T) {
	t.Parallel()
	c := parent(t, "1m", "echo")
	lines := start(t, c)
	for s := syscall.Signal(1); s < 65; s++ {
		switch s {
		case unix.SIGKILL, unix.SIGSTOP, // the kernel handles these
			unix.SIGTERM, // comes last
			unix.SIGPROF, // of the profiler of the Go runtime
			32, 33, 34,   // the C library and the Go runtime use them
			unix.SIGCHLD, unix.SIGURG, unix.SIGPIPE, unix.SIGTTIN, unix.SIGTTOU:
			continue
		}
		if err := c.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
		awaitLine(t, lines, strconv.Itoa(int(s)))
	}
	if err := c.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	awaitLine(t, lines, strconv.Itoa(int(unix.SIGTERM)))
	if _ = c.Wait(); c.ProcessState.ExitCode() != 7 {
		t.Errorf("%v, want exit code 7", c.ProcessState)
	}
}

// A child that ignores SIGTERM is killed, with what it has started.
func TestStubbornChild(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "pid")
	c := parent(t, "300ms", "stubborn", "sh", "-c", fmt.Sprintf(`trap '' TERM; sleep 1000 & echo $! > %s; %s`, file, self))
	start(t, c)
	if err := c.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if _ = c.Wait(); c.ProcessState.ExitCode() != 128+9 {
		t.Errorf("%v, want exit code 137", c.ProcessState)
	}
	awaitGone(t, file)
}

// awaitGone waits until the process whose number a file has is not running anymore.
func awaitGone(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pid := strings.TrimSpace(string(text))
	await(t, "process "+pid+" has ended", func() bool {
		stat, err := os.ReadFile("/proc/" + pid + "/stat")
		return err != nil || strings.Contains(string(stat), ") Z ") // a zombie waits for a process that is none of ours
	})
}

// await waits for a condition.
func await(t *testing.T, what string, condition func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 5*time.Millisecond, limit, true, func(context.Context) (bool, error) { return condition(), nil })
	if err != nil {
		t.Fatalf("waiting until %s: %v", what, err)
	}
}

// receive receives from a channel.
func receive[T any](t *testing.T, from <-chan T) (out T) {
	t.Helper()
	select {
	case out = <-from:
	case <-time.After(limit):
		t.Fatalf("nothing has come within %v", limit)
	}
	return out
}

// What the child has started ends with it.
func TestNothingIsLeft(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "pid")
	c := parent(t, "1m", "", "sh", "-c", `sleep 1000 & echo $! > `+file)
	if err := c.Run(); err != nil {
		t.Fatal(err)
	}
	awaitGone(t, file)
}

// Orphans that end are waited for, also while children come and go.
func TestOrphansAreReaped(t *testing.T) {
	t.Parallel()
	c := parent(t, "1m", "", "sh", "-c", `for i in $(seq 200); do (setsid sh -c 'exit 3' &) ; done; echo ready; read x`)
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	start(t, c)
	await(t, "no zombie is left", func() bool { return zombiesOf(t, c.Process.Pid) == 0 })
	if err := errors.Join(in.Close(), c.Wait()); err != nil && c.ProcessState.ExitCode() != 1 {
		t.Error(err)
	}
}

// Orphans are waited for too if they end together with a command that is waited for elsewhere, in whatever order that is noticed.
func TestOrphansAreReaped_BesideCommands(t *testing.T) {
	t.Parallel()
	c := parent(t, "1m", "", "sh", "-c", "echo ready; read x")
	c.Env = append(c.Env, "COMMANDS=300")
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	lines := start(t, c)
	awaitLine(t, lines, "no zombie is left")
	if err := errors.Join(in.Close(), c.Wait()); err != nil && c.ProcessState.ExitCode() != 1 {
		t.Error(err)
	}
}

func zombiesOf(t *testing.T, pid int) (n int) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range stats {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		_, rest, _ := strings.Cut(string(stat), ") ")
		if f := strings.Fields(rest); len(f) > 1 && f[0] == "Z" && f[1] == strconv.Itoa(pid) {
			n++
		}
	}
	return n
}

func TestRun(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	if err := Run(ctx, nil, nil, "true"); err != nil {
		t.Error(err)
	}
	for script, want := range map[string]string{"exit 3": "sh: exit code 3", "kill -KILL $$": "sh: signal: killed"} {
		if err := Run(ctx, nil, nil, "sh", "-c", script); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", script, err, want)
		}
	}
	if err := Run(ctx, nil, nil, "/no/such/program"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if err := Run(ctx, out, []string{"A=b"}, "sh", "-c", "echo $A; echo error >&2"); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(out.Name()); err != nil || string(text) != "b\nerror\n" {
		t.Errorf("output %q, %v", text, err)
	}
	// A command that takes too long is killed, with what it has started, whatever they ignore.
	file := filepath.Join(t.TempDir(), "pid")
	slow := errors.New("took too long")
	short, stop := context.WithCancelCause(t.Context())
	go func() {
		defer stop(slow) // also if the command does not run
		await(t, "the command runs", func() bool {
			text, _ := os.ReadFile(file)
			return strings.HasSuffix(string(text), "\n")
		})
	}()
	if err := Run(short, nil, nil, "sh", "-c", `trap '' TERM; sleep 1000 & echo $! > `+file+`; wait`); !errors.Is(err, slow) {
		t.Error(err)
	}
	awaitGone(t, file)
}
