// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// A process with this variable runs no tests: it is the child process of a test.
const victimVariable = "CONTROLPLANE_TEST_VICTIM"

func TestMain(m *testing.M) {
	if os.Getenv(victimVariable) != "" {
		victim()
	}
	os.Exit(m.Run())
}

// belongings are the folder and the processes that a victim reports before it is killed.
type belongings struct {
	Dir  string
	PIDs []int
}

// victim starts a control plane, reports its belongings, and waits to be killed.
func victim() {
	c, err := Start(context.Background(), Options{APIServerOnly: true, Log: os.Stderr})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if err := json.NewEncoder(os.Stdout).Encode(belongings{Dir: c.Dir(), PIDs: pids(c)}); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	select {}
}

// A killed test must leave nothing behind. SIGKILL is the worst case, compared with "go test -timeout" or Ctrl-C,
// because the process cannot clean up at all.
func TestNothingSurvivesAKill(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), victimVariable+"=1")
	cmd.Stderr = t.Output()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var had belongings
	decodeErr := json.NewDecoder(bufio.NewReader(stdout)).Decode(&had)
	for _, pid := range had.PIDs {
		if !running(pid) {
			t.Errorf("process %d was not running before the kill", pid)
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait() // "signal: killed"
	if decodeErr != nil {
		t.Fatalf("the victim did not report its belongings: %v", decodeErr)
	}
	checkNothingLeft(t, had.Dir, had.PIDs)
}

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
