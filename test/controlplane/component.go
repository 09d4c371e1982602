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

// A component is how one of them is run, and how to tell that it works.
type component struct {
	name string
	args []string
	// ready returns nil once the component has done what others rely on. It is called
	// again and again.
	ready func(context.Context) error
}

func (c *ControlPlane) launch(one component) error {
	cmd := exec.Command(filepath.Join(c.binaries, one.name), one.args...)
	cmd.Dir = c.dir
	// Nothing of the environment reaches components, above all no proxy: the API server
	// would look for aggregated API servers and webhooks behind it.
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + c.dir, "TMPDIR=" + c.dir}
	c.guard.adopt(cmd)
	p, err := startProcess(one.name, c.Logs(one.name), cmd)
	if err != nil {
		return err
	}
	c.processes[one.name] = p
	return nil
}

// await waits until a component is ready, or has ended, or it takes too long.
func (c *ControlPlane) await(ctx context.Context, one component) error {
	p := c.processes[one.name]
	notReady := errors.New("not asked yet")
	err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		// A request that hangs must not hide that the process has ended.
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		notReady = one.ready(ctx)
		return notReady == nil, p.ended()
	})
	if err == nil {
		return nil
	}
	if ctx.Err() == nil {
		return err // it says which component, and how it ended
	}
	return fmt.Errorf("%s: %w: %w; its log ends with:\n%s", one.name, context.Cause(ctx), notReady, p.tail())
}
