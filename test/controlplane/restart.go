// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// RestartAPIServer restarts kube-apiserver at the same address. All connections and watches break. It returns when the
// new process is ready. The arguments are flags that this process has besides those of Options, and override them, for
// example "--feature-gates=RestartAllContainersOnContainerExits=false".
//
// kube-scheduler, if there is one, is restarted too. Otherwise it would exit later if a pod had been replaced meanwhile
// by one with the same name on another node.
func (c *ControlPlane) RestartAPIServer(ctx context.Context, args ...string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return errors.New("restart kube-apiserver: the control plane has been stopped")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("not ready within %v", startLimit))
	defer cancel()
	started := time.Now()
	c.restartArgs = args
	for _, name := range []string{scheduler, apiServer} {
		if p, ok := c.processes[name]; ok {
			p.stop()
			delete(c.processes, name)
		}
	}
	for {
		err := c.launch(c.apiServer())
		if err == nil {
			err = c.await(ctx, c.apiServer())
		}
		if err == nil {
			c.progress("%s is ready again (%.1f s)", apiServer, time.Since(started).Seconds())
			return c.startScheduler(ctx)
		}
		// An outgoing connection may have taken the port meanwhile.
		if !errors.Is(err, errPortTaken) || ctx.Err() != nil {
			return fmt.Errorf("restart kube-apiserver: %w", err)
		}
	}
}

func (c *ControlPlane) startScheduler(ctx context.Context) error {
	if c.options.NoNodes {
		return nil
	}
	err := c.launch(c.scheduler())
	if err == nil {
		err = c.await(ctx, c.scheduler())
	}
	if err != nil {
		return fmt.Errorf("restart kube-scheduler: %w", err)
	}
	return nil
}
