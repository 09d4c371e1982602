// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package process runs child processes: one that is the application itself, and commands that end soon. The process may be the first one
// of a container (PID 1), which inherits the orphans of all others and has to wait for them.
package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Exit is how a process ended.
type Exit struct {
	Code   int            // as exit returned it
	Signal syscall.Signal // which ended it, or 0
}

// Status is the exit code as a shell shows it: 128 + N after signal N.
func (e Exit) Status() int {
	if e.Signal != 0 {
		return 128 + int(e.Signal)
	}
	return e.Code
}

// String is as "exit code 1" or "signal: killed".
func (e Exit) String() string {
	if e.Signal != 0 {
		return "signal: " + e.Signal.String()
	}
	return "exit code " + strconv.Itoa(e.Code)
}

// Child is a process that is the leader of a process group of its own.
type Child struct {
	process *os.Process
	done    chan struct{}
	exit    Exit // once done
}

// children are the processes that somewhere in this program is waited for. The reaper leaves them alone.
var children = struct {
	sync.Mutex
	byPID map[int]*Child
}{byPID: map[int]*Child{}}

// Start starts a command. Its process group gets the terminal if the command's standard input is one.
// The command must have files, or nothing, as standard input, output and error.
func Start(c *exec.Cmd) (*Child, error) {
	if c.SysProcAttr == nil {
		c.SysProcAttr = &syscall.SysProcAttr{}
	}
	c.SysProcAttr.Setpgid = true
	if f, ok := c.Stdin.(*os.File); ok {
		if _, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP); err == nil {
			c.SysProcAttr.Foreground, c.SysProcAttr.Ctty = true, int(f.Fd())
		}
	}
	// The reaper must not find the process before it is known.
	children.Lock()
	defer children.Unlock()
	if err := c.Start(); err != nil {
		return nil, err
	}
	child := &Child{process: c.Process, done: make(chan struct{})}
	children.byPID[child.PID()] = child
	go child.wait()
	return child, nil
}

func (c *Child) wait() {
	state, err := c.process.Wait()
	if err != nil {
		c.exit = Exit{Code: 255} // it was waited for elsewhere, which is a mistake
	} else if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		c.exit = Exit{Signal: status.Signal()}
	} else {
		c.exit = Exit{Code: state.ExitCode()}
	}
	children.Lock()
	defer children.Unlock()
	delete(children.byPID, c.PID())
	close(c.done)
}

// PID is the number of the process, and of its group.
func (c *Child) PID() int { return c.process.Pid }

// Done is closed once the process has ended. Processes that it has started may go on.
func (c *Child) Done() <-chan struct{} { return c.done }

// Exit is how the process ended, once it is done.
func (c *Child) Exit() Exit {
	<-c.done
	return c.exit
}

// Signal sends a signal to the process. The error is os.ErrProcessDone if it has ended.
func (c *Child) Signal(s os.Signal) error { return c.process.Signal(s) }

// KillGroup kills all processes of the group, also those that remain after the first has ended.
func (c *Child) KillGroup() error {
	if err := unix.Kill(-c.PID(), unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		return os.NewSyscallError("kill", err)
	}
	return nil
}

func (c *Child) hasEnded() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// killTime is how long a process may take to end after SIGKILL: a system call may hang, of a network file system for example.
const killTime = 10 * time.Second

// Stop asks the process to end, with SIGTERM, and kills its group after a time, or when the context ends. Afterwards no process of
// the group is left. If there is an error, the process may be: one of another user cannot be signalled without CAP_KILL.
func (c *Child) Stop(ctx context.Context, grace time.Duration) error {
	if err := c.Signal(unix.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-c.done:
	case <-timer.C:
	case <-ctx.Done():
	}
	return c.kill()
}

// kill kills the group, and waits until the process has ended.
func (c *Child) kill() error {
	if err := c.KillGroup(); err != nil {
		return err
	}
	select {
	case <-c.done:
		return nil
	case <-time.After(killTime):
		return fmt.Errorf("process %d has not ended %v after SIGKILL", c.PID(), killTime)
	}
}

// Run runs a command until it ends. When the context ends, its process group is killed, and the error is the cause of that. Otherwise
// the error tells how it ended, if not with 0. The output goes to a file, or nowhere.
func Run(ctx context.Context, output *os.File, env []string, name string, args ...string) error {
	c := exec.Command(name, args...) //nolint:noctx // the operator chooses the command; the whole group is killed below
	c.Env = env
	if output != nil {
		c.Stdout, c.Stderr = output, output
	}
	child, err := Start(c)
	if err != nil {
		return err
	}
	select {
	case <-child.done:
		if child.exit.Status() != 0 {
			return fmt.Errorf("%s: %s", name, child.exit)
		}
		return nil
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("%s: %w", name, context.Cause(ctx)), child.kill())
	}
}
