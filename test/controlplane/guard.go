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

// guard ends child processes if their parent cannot, because it was killed, a test panicked, or a user pressed Ctrl-C.
// It is a small process that holds one end of a pipe and leads a process group that contains all children. When this
// process ends for any reason, the pipe breaks, and the guard kills the group and removes the folder.
//
// While its leader is alive, the ID of a process group is not reused, so no unrelated process is ever signalled. The
// alternative, PR_SET_PDEATHSIG, exists only on Linux and fires when the parent's thread ends, which can happen at any
// time with the Go runtime.
type guard struct {
	cmd  *exec.Cmd
	pipe io.WriteCloser
}

// newGuard starts a guard that removes dir at the end, unless dir is the empty string.
func newGuard(dir string) (*guard, error) {
	cmd := exec.Command("bash", "-c", guardScript, "guard", dir)
	cmd.Dir = "/" // the guard must not keep a folder busy
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

// adopt adds a command to the group before it is started.
func (g *guard) adopt(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: g.cmd.Process.Pid}
}

// terminate sends SIGTERM to all processes of the group; the guard itself ignores it.
func (g *guard) terminate() error { return syscall.Kill(-g.cmd.Process.Pid, syscall.SIGTERM) }

// release kills the remaining processes of the group, including the guard, which therefore removes nothing.
func (g *guard) release() error {
	err := syscall.Kill(-g.cmd.Process.Pid, syscall.SIGKILL)
	_ = g.cmd.Wait() // "signal: killed"
	_ = g.pipe.Close()
	if err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("end the guard of child processes: %w", err)
	}
	return nil
}
