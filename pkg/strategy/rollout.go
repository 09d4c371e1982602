// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package strategy

import (
	"context"

	"github.com/configdep/configdep/pkg/workload"
)

// rollout is what follows from another pod template. The controller of the workload does all of it.
type rollout struct{}

// Continue implements Effects.
func (rollout) Continue(context.Context, workload.Client, *Restart) (Next, error) { return Next{}, nil }
