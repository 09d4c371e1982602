// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// dumpedProcess tells the child process of TestNoCoreDump to crash.
const dumpedProcess = "CONFIGDEP_TEST_CRASH"

// A server that crashes leaves no dump of its memory, however the node and the container are configured.
func TestNoCoreDump(t *testing.T) {
	switch os.Getenv(dumpedProcess) {
	case "forbidden":
		forbidDumps(t.Context())
		fallthrough
	case "allowed":
		unlimited := &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
		if err := unix.Setrlimit(unix.RLIMIT_CORE, unlimited); err != nil {
			os.Exit(1)
		}
		panic("crashed, as the test wants") // with GOTRACEBACK=crash, this ends with SIGABRT
	}
	crash := func(dumps string) (dumped bool) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestNoCoreDump$")
		cmd.Dir = t.TempDir()
		cmd.Env = append(os.Environ(), "GOTRACEBACK=crash", dumpedProcess+"="+dumps)
		_ = cmd.Run() // fails as intended
		status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
		if !ok || !status.Signaled() || status.Signal() != syscall.SIGABRT {
			t.Skipf("no process can be made to dump its memory here: %v", cmd.ProcessState) //nolint:forbidigo // nor can the server, then
		}
		return status.CoreDump()
	}
	if !crash("allowed") {
		t.Skip("no process dumps its memory here") //nolint:forbidigo // nor does the server, then
	}
	if crash("forbidden") {
		t.Error("the server has left a core dump")
	}
}
