// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package action

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Signal sends a signal to processes.
type Signal struct {
	Signal syscall.Signal
	To     Target
}

// Target finds processes.
type Target interface {
	// Send sends a signal to the processes. It is an error if there is none.
	Send(syscall.Signal) error
	String() string
}

// Do sends the signal.
func (s *Signal) Do(context.Context) error { return s.To.Send(s.Signal) }

func (s *Signal) String() string { return unix.SignalName(s.Signal) + " to " + s.To.String() }

// ParseSignal parses the name of a signal, with or without SIG, or its number.
func ParseSignal(text string) (syscall.Signal, error) {
	if n, err := strconv.Atoi(text); err == nil && n > 0 && n < 65 {
		return syscall.Signal(n), nil
	}
	name := strings.ToUpper(text)
	if !strings.HasPrefix(name, "SIG") {
		name = "SIG" + name
	}
	if s := unix.SignalNum(name); s != 0 {
		return s, nil
	}
	return 0, fmt.Errorf("%q is no signal: it must be a name as SIGHUP or a number from 1 to 64", text)
}

// Process is the processes of a program that are not children of another process of it: a master, and not its workers. They are seen if the
// containers of the pod share their process namespace.
type Process struct {
	// Name is the name of the executable, as in "nginx", or its path.
	Name string
	// Proc is where the file system proc is, "/proc" by default.
	Proc string
}

func (p Process) String() string { return "process " + p.Name }

type found struct{ pid, parent int }

// Send sends the signal to the processes.
func (p Process) Send(s syscall.Signal) error {
	proc := p.Proc
	if proc == "" {
		proc = "/proc"
	}
	entries, err := os.ReadDir(proc)
	if err != nil {
		return err
	}
	var all []found
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		if parent, is := p.is(filepath.Join(proc, e.Name())); is {
			all = append(all, found{pid, parent})
		}
	}
	masters := slices.DeleteFunc(slices.Clone(all), func(f found) bool {
		return slices.ContainsFunc(all, func(other found) bool { return other.pid == f.parent })
	})
	if len(masters) == 0 {
		return fmt.Errorf("no process of %s is running, or the containers of the pod do not share their process namespace (shareProcessNamespace)", p.Name)
	}
	var errs, ended []error
	for _, f := range masters {
		switch err := unix.Kill(f.pid, s); {
		case errors.Is(err, unix.ESRCH):
			ended = append(ended, fmt.Errorf("process %d: %w", f.pid, err))
		case err != nil:
			errs = append(errs, fmt.Errorf("process %d: %w", f.pid, err))
		}
	}
	if len(ended) == len(masters) {
		return errors.Join(ended...) // otherwise it was another command of the program, such as a probe
	}
	return errors.Join(errs...)
}

// is reports whether a folder of proc is that of a process of the program, and the number of its parent.
func (p Process) is(folder string) (parent int, is bool) {
	stat, err := os.ReadFile(filepath.Join(folder, "stat"))
	if err != nil {
		return 0, false // it has ended
	}
	// 12 (the name) S 1 …: the name may have spaces and parentheses.
	end := strings.LastIndex(string(stat), ") ")
	if end < 0 {
		return 0, false
	}
	fields := strings.Fields(string(stat)[end+2:])
	if len(fields) < 2 || fields[0] == "Z" {
		return 0, false
	}
	parent, _ = strconv.Atoi(fields[1])
	executable, err := os.Readlink(filepath.Join(folder, "exe"))
	executable = strings.TrimSuffix(executable, " (deleted)")
	if err == nil && (executable == p.Name || filepath.Base(executable) == p.Name) {
		return parent, true
	}
	// The executables of other users cannot be read. A process may change the words of its command line, as nginx does, but the first
	// one up to a colon stays.
	line, err := os.ReadFile(filepath.Join(folder, "cmdline"))
	if err != nil {
		return 0, false
	}
	first, _, _ := strings.Cut(string(line), "\x00")
	first, _, _ = strings.Cut(first, ":")
	return parent, first != "" && (first == p.Name || filepath.Base(first) == p.Name)
}

func parseJSON(text string, into any) error {
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows")
	}
	return nil
}
