// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// KubectlPath returns the path of a kubectl with the control plane's version.
func (c *ControlPlane) KubectlPath() string { return filepath.Join(c.binaries, "kubectl") }

// Kubectl runs kubectl as an administrator and returns its standard output. An error includes its standard error.
func (c *ControlPlane) Kubectl(ctx context.Context, args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd := c.Command(ctx, c.KubectlPath(), args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = errors.Join(err, context.Cause(ctx))
		}
		return stdout.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// Command prepares a program that belongs to this control plane, such as an aggregated API server, or kubectl with an
// input. It has KUBECONFIG set and its cache in Dir, and never outlives this process or Stop.
func (c *ControlPlane) Command(ctx context.Context, path string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig(), "KUBECACHEDIR="+c.file("kubectl-cache"))
	c.guard.adopt(cmd)
	return cmd
}
