// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
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

// giveBack returns memory to the system once the cluster has been read, which needs much memory. An idle server makes so
// little garbage that it would otherwise keep this memory for minutes.
func (s *Server) giveBack(ctx context.Context) {
	ready := func(context.Context) (bool, error) { return s.index.Synced() == nil && s.resources.ready() == nil, nil }
	if wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, ready) == nil {
		debug.FreeOSMemory()
	}
}
