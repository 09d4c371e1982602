// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package modcache gives tests a Go module cache of their own.
package modcache

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// New returns the environment of an empty module cache, GOMODCACHE and GOPROXY, which is removed after the test. Modules
// come from proxies (URLs) first, then from the usual cache, then from where they usually come.
func New(t *testing.T, proxies ...string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "env", "GOMODCACHE", "GOPROXY").Output()
	if err != nil {
		t.Fatal(err)
	}
	usual := strings.Split(strings.TrimSpace(string(out)), "\n")
	dir := filepath.Join(t.TempDir(), "modules")
	t.Cleanup(func() { // what is in it is read-only
		clean := exec.CommandContext(context.WithoutCancel(t.Context()), "go", "clean", "-modcache")
		clean.Env = append(os.Environ(), "GOMODCACHE="+dir)
		if out, err := clean.CombinedOutput(); err != nil {
			t.Errorf("removing the module cache: %v: %s", err, out)
		}
	})
	return []string{"GOMODCACHE=" + dir, "GOPROXY=" + strings.Join(append(proxies, "file://"+usual[0]+"/cache/download", usual[1]), ",")}
}
