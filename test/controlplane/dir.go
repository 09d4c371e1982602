// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"fmt"
	"os"
	"path/filepath"
)

// newDir creates the folder for a control plane.
func newDir(root string) (string, error) {
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
