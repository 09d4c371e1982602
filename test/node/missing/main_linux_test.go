// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/configdep/configdep/test/node"
)

// run runs a command, and returns its output and its exit code.
func run(t *testing.T, cmd *exec.Cmd) (output string, code int) {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		return string(out), failed.ExitCode()
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(out), 0
}

// Where a node cannot run, make e2e-node says why, and starts nothing. That is an error only if it must run. If it cannot find out, it is one
// always.
func TestScript(t *testing.T) {
	const script = "../../../hack/node/test.sh"
	goProgram, err := exec.LookPath("go")
	if err != nil {
		t.Fatal(err)
	}
	// All that the script may need until then, and nothing that a node needs.
	path, calls := t.TempDir(), filepath.Join(t.TempDir(), "calls")
	for _, name := range []string{"bash", "dirname"} {
		found, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(found, filepath.Join(path, name)); err != nil {
			t.Fatal(err)
		}
	}
	fakeGo := func(then string) {
		t.Helper()
		text := "#!/usr/bin/env bash\necho \"$*\" >>'" + calls + "'\n" + then + "\n"
		if err := os.WriteFile(filepath.Join(path, "go"), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", path)
	missing := node.Missing()
	if missing == nil {
		t.Fatal("a node needs no program")
	}
	const question = "run -trimpath -tags grpcnotrace ./test/node/missing\n"
	reason := "e2e-node: this machine cannot run a node: " + missing.Error() + "\n"
	for name, tc := range map[string]struct {
		setting, then string
		code          int
		says, calls   string
	}{
		"required": {setting: "required", code: 1, says: reason, calls: question},
		"default":  {setting: "", code: 1, says: reason, calls: question},
		"optional": {setting: "optional", code: 0, says: reason + "e2e-node: nothing was tested\n", calls: question},
		"neither":  {setting: "maybe", code: 1, says: "e2e-node: E2E_NODE=maybe is neither required nor optional\n"},
		"does not compile": {
			setting: "optional", then: "echo missing.go:1: a mistake >&2; exit 1", code: 1,
			says: "missing.go:1: a mistake\ne2e-node: whether this machine can run a node is not known: the reason is above\n", calls: question,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.RemoveAll(calls); err != nil {
				t.Fatal(err)
			}
			if tc.then == "" {
				tc.then = "exec '" + goProgram + "' \"$@\""
			}
			fakeGo(tc.then)
			cmd := exec.CommandContext(t.Context(), script)
			cmd.Env = append(cmd.Environ(), "E2E_NODE="+tc.setting, "TEST_FLAGS=", "TEST_TIMEOUT=")
			out, code := run(t, cmd)
			if says := strings.Replace(out, "exit status 1\n", "", 1); code != tc.code || says != tc.says { // by go run
				t.Errorf("exit code %d, want %d; (-want +got):\n%s", code, tc.code, cmp.Diff(tc.says, says))
			}
			got, err := os.ReadFile(calls)
			if err != nil && tc.calls != "" {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.calls, string(got)); diff != "" {
				t.Errorf("calls of go (-want +got):\n%s", diff)
			}
		})
	}
}
