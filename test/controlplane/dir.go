// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"fmt"
	"os"
	"path/filepath"
)

// newDir creates the folder for a control plane. It refuses a folder that is not empty, because the folder is removed at
// the end.
func newDir(root, dir string) (string, error) {
	if dir == "" {
		parent := filepath.Join(root, ".cache", "run")
		if err := os.MkdirAll(parent, 0o755); err != nil {
			return "", fmt.Errorf("create folder for control planes: %w", err)
		}
		dir, err := os.MkdirTemp(parent, "")
		if err != nil {
			return "", fmt.Errorf("create folder for control plane: %w", err)
		}
		return dir, nil
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("find folder for control plane: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("create folder for control plane: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", fmt.Errorf("read folder for control plane: %w", err)
	}
	if len(entries) > 0 {
		return "", fmt.Errorf("folder for control plane is not empty: %s", dir)
	}
	return dir, nil
}
