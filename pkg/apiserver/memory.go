// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"os"
	"runtime/debug"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
)

// memoryRefresh is how often to check whether the memory limit of the container has changed, which can happen while the
// pod runs.
const memoryRefresh = time.Minute

// followMemoryLimit keeps GOMEMLIMIT at 9/10 of the memory limit of the container, unless the environment sets it, so
// that garbage is collected more often near the limit. It ends with the context.
func followMemoryLimit(ctx context.Context) {
	if _, err := memlimit.Set(memlimit.WithRefreshInterval(ctx, memoryRefresh)); err != nil {
		klog.FromContext(ctx).Info("The limit of the container's memory is not known, so that the garbage collector does not follow it", "err", err)
	}
}

// What the server does makes little garbage, but reading the cluster makes much, and the limit of the container's memory must be
// set by that: so the garbage collector runs twice as often as it does by default, and twice as often again during the start.
const (
	gcPercent        = 50
	gcPercentAtStart = 25
)

// collect sets how often the garbage collector runs, unless the environment does.
func collect(percent int) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}

// giveBackAfter are the times from one return of memory to the next. What follows the start, such as writes of records, makes
// garbage too.
var giveBackAfter = []time.Duration{0, 5 * time.Second, 25 * time.Second}

// giveBack returns memory to the system once the cluster has been read, which needs much memory. An idle server makes so
// little garbage that it would otherwise keep this memory for minutes.
func (s *Server) giveBack(ctx context.Context) {
	ready := func(context.Context) (bool, error) {
		return s.index.Synced() == nil && s.dependencies.Ready() == nil, nil
	}
	if wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, ready) != nil {
		return // the context is done
	}
	collect(gcPercent)
	for _, after := range giveBackAfter {
		select {
		case <-time.After(after):
			debug.FreeOSMemory()
		case <-ctx.Done():
			return
		}
	}
}
