// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// The components, by the names of their binaries.
const (
	etcd              = "etcd"
	apiServer         = "kube-apiserver"
	controllerManager = "kube-controller-manager"
	scheduler         = "kube-scheduler"
	kwok              = "kwok"
)

// component describes how a component is run and when it is ready.
type component struct {
	name string
	args []string
	// prepare removes what an earlier process has left and ready would take for a sign of this one. nil: there is nothing.
	prepare func(context.Context) error
	// ready returns nil once other components can rely on this one. It is called repeatedly.
	ready func(context.Context) error
}

func (c *ControlPlane) launch(one component) error {
	cmd := exec.Command(filepath.Join(c.binaries, one.name), one.args...)
	cmd.Dir = c.dir
	// Components do not inherit environment variables, in particular no proxy: the API server would use it for
	// aggregated API servers and webhooks.
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + c.dir, "TMPDIR=" + c.dir}
	c.guard.adopt(cmd)
	p, err := startProcess(one.name, c.Logs(one.name), cmd)
	if err != nil {
		return err
	}
	c.processes[one.name] = p
	return nil
}

// await waits until a component is ready. It returns an error if the component exits or is not ready in time.
func (c *ControlPlane) await(ctx context.Context, one component) error {
	p := c.processes[one.name]
	notReady := errors.New("not asked yet")
	err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		// A hanging request must not hide that the process has exited.
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		notReady = one.ready(ctx)
		return notReady == nil, p.ended()
	})
	if err == nil {
		return nil
	}
	if ctx.Err() == nil {
		return err // the error names the component and its exit status
	}
	return fmt.Errorf("%s: %w: %w; its log ends with:\n%s", one.name, context.Cause(ctx), notReady, p.tail())
}
