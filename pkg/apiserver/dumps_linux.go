// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
)

// forbidDumps makes the kernel write no core dump of the process, regardless of GOTRACEBACK, the limits of the container
// and the node's core_pattern, and lets only privileged processes read its memory. The memory may hold Secrets that have
// passed through connections.
func forbidDumps(ctx context.Context) {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		klog.FromContext(ctx).Info("Core dumps of this process are not prevented, and may contain Secrets", "err", err)
	}
}
