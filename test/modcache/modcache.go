// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package modcache provides separate Go module caches for tests.
package modcache

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// New returns the environment variables GOMODCACHE and GOPROXY for an empty module cache, which is removed after the
// test. Modules are downloaded from the given proxies (URLs) first, then from the user's module cache, then from the
// configured proxies.
func New(t *testing.T, proxies ...string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "env", "GOMODCACHE", "GOPROXY").Output()
	if err != nil {
		t.Fatal(err)
	}
	usual := strings.Split(strings.TrimSpace(string(out)), "\n")
	dir := filepath.Join(t.TempDir(), "modules")
	t.Cleanup(func() { // the files in it are read-only
		clean := exec.CommandContext(context.WithoutCancel(t.Context()), "go", "clean", "-modcache")
		clean.Env = append(os.Environ(), "GOMODCACHE="+dir)
		if out, err := clean.CombinedOutput(); err != nil {
			t.Errorf("removing the module cache: %v: %s", err, out)
		}
	})
	return []string{"GOMODCACHE=" + dir, "GOPROXY=" + strings.Join(append(proxies, "file://"+usual[0]+"/cache/download", usual[1]), ",")}
}
