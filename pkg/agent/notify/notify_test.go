// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestDirectory(t *testing.T) {
	dir := t.TempDir()
	changed, stop := Directory(dir)
	defer stop()
	select {
	case <-changed:
		t.Error("told of a change before there is one")
	default:
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	select {
	case <-changed:
	case <-time.After(5 * time.Minute):
		t.Error("not told of a change")
	}
}

// A directory that does not exist is no error: others look for it now and then.
func TestDirectory_Missing(t *testing.T) {
	changed, stop := Directory(filepath.Join(t.TempDir(), "missing"))
	stop()
	select {
	case <-changed:
		t.Error("told of a directory that does not exist")
	default:
	}
}
