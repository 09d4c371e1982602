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

// KubectlPath is the path of a kubectl of the control plane's version.
func (c *ControlPlane) KubectlPath() string { return filepath.Join(c.binaries, "kubectl") }

// Kubectl runs kubectl with all rights and returns its standard output. An error says
// what kubectl wrote to standard error.
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

// Command prepares any program that belongs to this control plane, such as an aggregated
// API server, or kubectl with an input. KUBECONFIG is set for it, its cache is below
// Dir, and it never outlives this process or Stop.
func (c *ControlPlane) Command(ctx context.Context, path string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig(), "KUBECACHEDIR="+c.file("kubectl-cache"))
	c.guard.adopt(cmd)
	return cmd
}
