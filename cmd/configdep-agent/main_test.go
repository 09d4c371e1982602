// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/configdep/configdep/pkg/agent"
	"github.com/configdep/configdep/pkg/agent/process"
)

// The exit code of the application is that of the agent, and 126 and 127 are about the application alone.
func TestExitCode(t *testing.T) {
	start := func(err error) error { return &process.StartError{Err: err} }
	unclean := errors.New("cannot close")
	for name, tt := range map[string]struct {
		exit *process.Exit
		err  error
		want int
	}{
		"nothing went wrong":                         {nil, nil, 0},
		"the application ended":                      {&process.Exit{Code: 5}, nil, 5},
		"the application ended by a signal":          {&process.Exit{Signal: syscall.SIGKILL}, nil, 137},
		"the application ended, the agent fails":     {&process.Exit{Code: 5}, unclean, 5},
		"the application succeeded, the agent fails": {&process.Exit{}, unclean, 0},
		"interrupted":                                {nil, errors.Join(agent.ErrInterrupted, unclean), 143},
		"there is no such program in PATH":           {nil, start(&exec.Error{Name: "app", Err: exec.ErrNotFound}), 127},
		"there is no such file":                      {nil, errors.Join(start(&os.PathError{Op: "fork/exec", Path: "/app", Err: syscall.ENOENT}), unclean), 127},
		"the program is not executable":              {nil, start(&os.PathError{Op: "fork/exec", Path: "/app", Err: syscall.EACCES}), 126},
		"the program is for another machine":         {nil, start(&os.PathError{Op: "fork/exec", Path: "/app", Err: syscall.ENOEXEC}), 126},
		"the files cannot be written":                {nil, &os.PathError{Op: "mkdir", Path: "/files", Err: syscall.EACCES}, 1},
		"the directory of the files does not exist":  {nil, &os.PathError{Op: "mkdir", Path: "/proc/none", Err: syscall.ENOENT}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			code, err := exitCode(tt.exit, tt.err)
			if code != tt.want {
				t.Errorf("exit code %d, want %d", code, tt.want)
			}
			if told := tt.exit == nil && tt.err != nil; (err != nil) != told { // main takes an error for a failure
				t.Errorf("error %v", err)
			}
		})
	}
}
