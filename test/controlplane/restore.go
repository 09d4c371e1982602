// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// BackUp stops all components, copies what etcd has stored, and starts them again at the same addresses. It replaces an
// earlier backup.
func (c *ControlPlane) BackUp(ctx context.Context) error {
	return c.restartAll(ctx, "back up", func() error { return replaceDir(c.file("backup"), c.file("etcd")) })
}

// Restore stops all components, restores etcd from the backup, and starts them again at the same addresses. Revisions go
// back.
func (c *ControlPlane) Restore(ctx context.Context) error {
	return c.restartAll(ctx, "restore", func() error { return replaceDir(c.file("etcd"), c.file("backup")) })
}

// restartAll calls a function while no component runs.
func (c *ControlPlane) restartAll(ctx context.Context, what string, between func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return errors.New(what + ": the control plane has been stopped")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("not ready within %v", startLimit))
	defer cancel()
	c.stopComponents()
	err := between()
	if err == nil {
		err = c.launchAll(ctx)
	}
	// An outgoing connection may have taken a port meanwhile.
	for errors.Is(err, errPortTaken) && ctx.Err() == nil {
		c.stopComponents()
		err = c.launchAll(ctx)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// replaceDir replaces a directory by a copy of another.
func replaceDir(dir, by string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	return os.CopyFS(dir, os.DirFS(by))
}
