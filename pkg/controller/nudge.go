// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/configdep/configdep/pkg/notify"
	"github.com/configdep/configdep/pkg/policy"
)

// The limits of nudges: of pods, for the whole server, and of workloads.
const (
	nudgesPerSecond = 20
	nudgesAtOnce    = 50
	nudgePause      = time.Second
)

// nudge nudges the pods of a workload, and records for which content once it has nudged all. It returns after which time to go on.
func (c *Controller) nudge(ctx context.Context, s *step) (time.Duration, error) {
	w, now := s.workload, c.Clock.Now()
	n := c.note(w.WorkloadKey)
	if wait := max(n.nudged.Add(nudgePause).Sub(now), n.pace.wait(now, w.ResourceVersion)); wait > 0 {
		return wait, nil
	}
	var err error
	if !policy.NudgeIsNew(w, s.live) {
		n.nudged = now
		if !c.nudges.TryAccept() { // to list pods in vain would cost more than to nudge them
			return nudgePause, nil
		}
		accepted := true
		var more bool
		more, err = n.nudge.Step(ctx, c.Client, w, policy.NudgeOf(s.live), func() bool {
			allowed := accepted || c.nudges.TryAccept()
			accepted = false
			return allowed
		})
		if more {
			return nudgePause, nil
		}
	}
	var data []byte
	if err == nil {
		data, err = policy.NudgedPatch(w, s.live)
	}
	if err == nil {
		s.progress = s.live
		err = c.patch(ctx, s, data)
	}
	switch {
	case err == nil:
		return n.awaits(now, w.ResourceVersion), nil
	case apierrors.IsNotFound(err): // deleted meanwhile
		return 0, nil
	case ctx.Err() != nil: // this replica no longer leads
		return 0, err
	case !apierrors.IsConflict(err):
		c.notify(w, notify.LookUpFailed, fmt.Sprintf("Nudging the pods failed and will be retried: %v", err))
	}
	return n.pace.failed(now, w.ResourceVersion, err), err
}
