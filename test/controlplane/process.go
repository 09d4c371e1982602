// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// A component that does not exit within this time after SIGTERM is killed. All state is discarded anyway.
const stopLimit = 10 * time.Second

// errPortTaken means that another process took a port after it was chosen and before the component listened on it. A
// retry uses other ports.
var errPortTaken = errors.New("a port was taken by another process")

// process is one run of a component.
type process struct {
	name     string
	cmd      *exec.Cmd
	log      string        // path
	logStart int64         // offset of this run's output
	exited   chan struct{} // closed when the process has exited and been reaped
	state    error         // how the process exited; valid after exited is closed
}

// startProcess starts a component whose output is appended to its log file.
func startProcess(name, log string, cmd *exec.Cmd) (*process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open log of %s: %w", name, err)
	}
	defer out.Close() // the child has its own descriptor
	start, err := out.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, fmt.Errorf("find end of log of %s: %w", name, err)
	}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p := &process{name: name, cmd: cmd, log: log, logStart: start, exited: make(chan struct{})}
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
	default:
		return nil
	}
	how := "exit status 0"
	if p.state != nil {
		how = p.state.Error()
	}
	tail := p.tail()
	if strings.Contains(tail, "address already in use") {
		return fmt.Errorf("%s ended: %w (%s); its log ends with:\n%s", p.name, errPortTaken, how, tail)
	}
	return fmt.Errorf("%s ended: %s; its log ends with:\n%s", p.name, how, tail)
}

// stop ends the process and waits until it has exited.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // fails if the process has exited, which is fine
	limit := time.NewTimer(stopLimit)
	defer limit.Stop()
	select {
	case <-p.exited:
	case <-limit.C:
		_ = p.cmd.Process.Kill()
		<-p.exited
	}
}

// tail returns the last lines of this run's log.
func (p *process) tail() string {
	const lines, size = 20, 64 << 10
	f, err := os.Open(p.log)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	from := p.logStart
	if end, err := f.Seek(0, io.SeekEnd); err == nil {
		from = max(from, end-size)
	}
	data, err := io.ReadAll(io.NewSectionReader(f, from, size))
	if err != nil {
		return err.Error()
	}
	all := bytes.Split(bytes.TrimSpace(data), []byte("\n"))
	return string(bytes.Join(all[max(0, len(all)-lines):], []byte("\n")))
}
