// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"errors"
	"os"
	"sync"
)

// Stop ends all processes, waits until they have exited, and removes the folder. It reports components that had exited
// before, because a test that passed without them has tested less than intended. Further calls have no effect.
func (c *ControlPlane) Stop() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return c.stopErr
	}
	c.stopped = true
	var ended []error
	for _, p := range c.processes {
		ended = append(ended, p.ended())
	}
	c.stopErr = errors.Join(append(ended, c.end())...)
	return c.stopErr
}

// end undoes start, even if start has failed halfway.
func (c *ControlPlane) end() error {
	c.stopComponents()
	remove := func() error {
		if c.options.KeepDir {
			return nil
		}
		return os.RemoveAll(c.dir)
	}
	if c.guard == nil {
		return remove()
	}
	// The guard ends last. A command in its group may write to the folder until then, so the folder is removed
	// again.
	_ = remove()
	return errors.Join(c.guard.release(), remove())
}

// stopComponents stops clients before their servers, so that their last requests succeed and no client waits for an
// answer in vain.
func (c *ControlPlane) stopComponents() {
	for _, stage := range [][]string{{kwok, scheduler, controllerManager}, {apiServer}, {etcd}} {
		var stopping sync.WaitGroup
		for _, name := range stage {
			if p, ok := c.processes[name]; ok {
				stopping.Go(p.stop)
				delete(c.processes, name)
			}
		}
		stopping.Wait()
	}
}
