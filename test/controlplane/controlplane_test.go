// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

func pids(c *ControlPlane) []int {
	all := []int{c.guard.cmd.Process.Pid}
	for _, p := range c.processes {
		all = append(all, p.cmd.Process.Pid)
	}
	return all
}

// checkNothingLeft checks that processes and a folder are gone. It waits, because a killed process does not exit
// immediately.
func checkNothingLeft(t *testing.T, dir string, pids []int) {
	t.Helper()
	var left []int
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		left = nil
		for _, pid := range pids {
			if running(pid) {
				left = append(left, pid)
			}
		}
		_, err := os.Stat(dir)
		return len(left) == 0 && os.IsNotExist(err), nil
	})
	if err != nil {
		_, statErr := os.Stat(dir)
		t.Errorf("still left: processes %v, folder %v", left, statErr == nil)
	}
}

// running reports whether a process runs. A zombie does not run; its parent may be an init that never reaps it.
func running(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)) // Linux only
	_, state, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(state, "Z")
}
