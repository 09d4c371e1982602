// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"errors"
	"os"
	"sync"
)

// Stop ends all processes, waits until they are gone, and removes the folder. It reports
// components that had ended before, as a test that passed without them has tested less
// than it seems. Calling it again does no more.
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

// end undoes start, however far that came.
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
	// The guard goes when there is nothing left to guard. A command that goes with it
	// may write to the folder until then, hence once more.
	_ = remove()
	return errors.Join(c.guard.release(), remove())
}

// stopComponents ends clients before what they are clients of, so that their last
// requests succeed and no client waits for an answer that never comes.
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
