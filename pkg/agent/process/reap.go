// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// Reap waits for orphans that this process has inherited, until the context ends, so that none of them stays as a zombie.
func Reap(ctx context.Context) {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, unix.SIGCHLD)
	defer signal.Stop(ended)
	for {
		reapAll(ctx)
		select {
		case <-ended:
		case <-ctx.Done():
			return
		}
	}
}

// reapAll waits for all children that have ended. Those that this program has started are waited for where they were started.
func reapAll(ctx context.Context) {
	for ctx.Err() == nil {
		var info siginfo
		if err := peek(&info); err != nil || info.pid == 0 {
			return
		}
		children.Lock()
		child := children.byPID[int(info.pid)]
		if child == nil {
			// This fails if it was waited for meanwhile where it was started. Others may have ended with it, so peek tells whether to go on.
			_, _ = unix.Wait4(int(info.pid), nil, unix.WNOHANG, nil)
		}
		children.Unlock()
		if child == nil {
			continue
		}
		select {
		case <-child.done: // soon: it has ended
		case <-ctx.Done():
		}
	}
}
