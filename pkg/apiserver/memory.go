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

// memoryRefresh is how often to check whether the limit of the container's memory has changed, as it can while a pod runs.
const memoryRefresh = time.Minute

// followMemoryLimit lets the garbage collector work harder near the limit of the container's memory: at 9/10 of it,
// unless GOMEMLIMIT says otherwise. It ends with the context.
func followMemoryLimit(ctx context.Context) {
	if _, err := memlimit.Set(memlimit.WithRefreshInterval(ctx, memoryRefresh)); err != nil {
		klog.FromContext(ctx).Info("The limit of the container's memory is not known, so that the garbage collector does not follow it", "err", err)
	}
}

// giveBack returns memory to the system once the cluster has been read: much of it was needed for that alone. A server
// at rest makes so little garbage that it would keep it for minutes.
func (s *Server) giveBack(ctx context.Context) {
	ready := func(context.Context) (bool, error) { return s.index.Synced() == nil && s.resources.ready() == nil, nil }
	if wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, ready) == nil {
		debug.FreeOSMemory()
	}
}
