// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// process is a process of which the end is noticed.
type process struct {
	name   string
	pid    int
	log    string        // path
	exited chan struct{} // closed when the process has exited and been reaped
	state  error         // how the process exited; valid after exited is closed
}

// startProcess starts a command whose output, where it is not set, goes to a log file.
func startProcess(cmd *exec.Cmd, log string) (*process, error) {
	name := filepath.Base(log)
	out, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer out.Close() // the child has its own descriptor
	if cmd.Stdout == nil {
		cmd.Stdout = out
	}
	cmd.Stderr = out
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p := &process{name: name, pid: cmd.Process.Pid, log: log, exited: make(chan struct{})}
	go func() {
		p.state = cmd.Wait()
		close(p.exited)
	}()
	return p, nil
}

// ended returns an error if the process has exited by itself, which none should.
func (p *process) ended() error {
	select {
	case <-p.exited:
		return fmt.Errorf("%s ended: %w; its log ends with:\n%s", p.name, errors.Join(p.state), p.tail())
	default:
		return nil
	}
}

// tail returns the last lines of the log.
func (p *process) tail() string {
	const lines = 20
	data, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	all := bytes.Split(bytes.TrimSpace(data), []byte("\n"))
	return string(bytes.Join(all[max(0, len(all)-lines):], []byte("\n")))
}

// command prepares a program in the namespaces of the node. It ends with the node.
func (n *Node) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "nsenter", append([]string{
		"--target", strconv.Itoa(n.pid), "--mount", "--uts", "--ipc", "--net", "--pid", "--wd=/", filepath.Join(n.bin, program),
	}, args...)...)
	cmd.Env = n.env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C ends the node, not one component before the others
	return cmd
}

// launch starts a component.
func (n *Node) launch(name string, args ...string) error {
	p, err := startProcess(n.command(context.Background(), name, args...), n.Logs(name))
	if err != nil {
		return err
	}
	p.name = name
	n.components = append(n.components, p)
	return nil
}

// await calls check until it returns nil, or a component ends.
func (n *Node) await(ctx context.Context, what string, check func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		for _, component := range n.components {
			if err := component.ended(); err != nil {
				return false, err
			}
		}
		last = check(ctx)
		return last == nil, nil
	})
	if err != nil {
		if ctx.Err() != nil {
			err = errors.Join(context.Cause(ctx), last)
		}
		return fmt.Errorf("wait until %s: %w; logs are in %s", what, err, n.file("logs"))
	}
	return nil
}
