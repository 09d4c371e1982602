// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package strategy

import (
	"context"

	"github.com/configdep/configdep/pkg/workload"
)

// rollout has nothing to do: the controller of the workload replaces the pods once the pod template, or the field that its
// kind names, has changed.
type rollout struct{}

// Begin implements Effects.
func (rollout) Begin(context.Context, workload.Client, *Beginning) (Next, error) { return Next{}, nil }

// Continue implements Effects.
func (rollout) Continue(context.Context, workload.Client, *Restart) (Next, error) { return Next{}, nil }
