// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"time"

	"github.com/configdep/configdep/pkg/agent/process"
)

// Restart is an action that starts the application again. It is not interrupted, so that the application gets its time to end.
type Restart struct {
	Application *process.Application
	// Uptime is for how long the application must run to count as started.
	Uptime time.Duration
}

// Do starts the application again.
func (r *Restart) Do(ctx context.Context) error {
	return r.Application.Restart(context.WithoutCancel(ctx), r.Uptime)
}

func (r *Restart) String() string { return "restart of " + r.Application.Command[0] }
