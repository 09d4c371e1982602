package soak

import (
	"context"
	"syscall"

	"github.com/configdep/configdep/test/install"
)

// disrupt lets something happen to a replica or to the API server.
func (s *stage) disrupt(ctx context.Context, d disruption) error {
	r, p := server.Replicas[d.replica], proxies[d.replica]
	switch d.what {
	case "kill", "terminate":
		if d.what == "kill" {
			r.Kill()
		} else if err := r.Terminate(); err != nil {
			return err
		}
		pause(ctx, d.lasts)
		return start(ctx, r)
	case "stop": // it believes afterwards that no time has passed
		if err := syscall.Kill(r.PID(), syscall.SIGSTOP); err != nil {
			return err
		}
		pause(ctx, d.lasts)
		return syscall.Kill(r.PID(), syscall.SIGCONT)
	case "freeze":
		p.freeze()
		pause(ctx, d.lasts)
		p.thaw()
	case "sever":
		p.sever()
		pause(ctx, d.lasts)
		p.thaw()
	case "break watches":
		p.breakAll()
	case "restart API server":
		return cluster.RestartAPIServer(ctx)
	}
	return nil
}

// start starts a replica, again and again if need be, as a kubelet would: one that cannot
// read what it needs to begin with gives up.
func start(ctx context.Context, r *install.Replica) error {
	for {
		if err := r.Start(); err != nil {
			return err
		}
		err := r.AwaitReady(ctx)
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
}
