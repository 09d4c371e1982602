package controlplane

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// RestartAPIServer stops kube-apiserver and starts it again at the same address. All
// connections break, and all watches with them. It returns when the new one is ready.
func (c *ControlPlane) RestartAPIServer(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return errors.New("restart kube-apiserver: the control plane has been stopped")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("not ready within %v", startLimit))
	defer cancel()
	started := time.Now()
	if p, ok := c.processes[apiServer]; ok {
		p.stop()
		delete(c.processes, apiServer)
	}
	for {
		err := c.launch(c.apiServer())
		if err == nil {
			err = c.await(ctx, c.apiServer())
		}
		if err == nil {
			c.progress("%s is ready again (%.1f s)", apiServer, time.Since(started).Seconds())
			return nil
		}
		// Somebody's outgoing connection may have been given the port meanwhile.
		if !errors.Is(err, errPortTaken) || ctx.Err() != nil {
			return fmt.Errorf("restart kube-apiserver: %w", err)
		}
	}
}
