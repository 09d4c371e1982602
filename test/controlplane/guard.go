// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"syscall"
)

//go:embed guard.sh
var guardScript string

// A guard ends child processes that their parent could not end itself, because it was
// killed, because a test panicked, or because a user pressed ctrl-C. It is a small
// process that holds one end of a pipe and leads a process group that all children
// belong to. When this process goes, however it does, the pipe breaks, and the guard
// kills the group and removes the folder.
//
// A process group whose leader is alive cannot be mistaken for another, so no process
// is ever signalled by a number that has meanwhile been given to another one. The
// alternative, PR_SET_PDEATHSIG, exists on Linux only and fires when the parent's
// thread ends, which the Go runtime may do at any time.
type guard struct {
	cmd  *exec.Cmd
	pipe io.WriteCloser
}

// newGuard starts a guard that in the end removes dir, unless that is empty.
func newGuard(dir string) (*guard, error) {
	cmd := exec.Command("bash", "-c", guardScript, "guard", dir)
	cmd.Dir = "/" // it must not keep a folder busy
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("create the guard's pipe: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the guard of child processes: %w", err)
	}
	return &guard{cmd: cmd, pipe: pipe}, nil
}

// adopt puts a command that has not been started into the group.
func (g *guard) adopt(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: g.cmd.Process.Pid}
}

// terminate asks all processes of the group to end; the guard itself ignores it.
func (g *guard) terminate() error { return syscall.Kill(-g.cmd.Process.Pid, syscall.SIGTERM) }

// release kills whatever is still in the group, and with it the guard, which therefore
// removes nothing.
func (g *guard) release() error {
	err := syscall.Kill(-g.cmd.Process.Pid, syscall.SIGKILL)
	_ = g.cmd.Wait() // "signal: killed"
	_ = g.pipe.Close()
	if err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("end the guard of child processes: %w", err)
	}
	return nil
}
