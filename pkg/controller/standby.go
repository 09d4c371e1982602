// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
)

// standbyPause is the maximum time for which a doubt is left to the leader, which looks up pods within seconds; the
// minimum is half of it.
const standbyPause = 30 * time.Second

// StandBy checks what this replica has seen but the leader may have missed, because it was cut off or started later:
// content that changed and changed back, or a template that came back. If nothing has been recorded about that after
// standbyPause, it looks up the pods itself. If a pod has read other content, it records that, so that the leader
// restarts the workload; otherwise Found reports that none has. It runs until the context is done, and must not run at
// the same time as Run.
func (c *Controller) StandBy(ctx context.Context, index policy.Index) {
	c.serve(ctx, index, 1, false)
}

// assist handles one workload while another replica leads. It returns after which time to do so again; 0: when it has
// changed.
func (c *Controller) assist(ctx context.Context, index policy.Index, key dependency.WorkloadKey) (time.Duration, error) {
	found := findings{inspected: c.Found(key)}
	for looked := false; ; looked = true {
		s := c.decide(index, key, found)
		if s == nil {
			return 0, nil
		}
		n, now := c.note(key), c.Clock.Now()
		if s.Action != policy.Inspect && s.Action != policy.WriteMixed || s.Action == policy.Inspect && looked {
			n.doubted = false
			if s.Stale || s.workload == nil { // when a restart is due, or our own write is lost, it may be one to look after
				return s.recheck(now), nil
			}
			return 0, nil
		}
		if !n.doubted {
			n.doubted = true
			return standbyPause / 2, nil
		}
		if wait := n.pace.wait(now, s.workload.ResourceVersion); wait > 0 {
			return wait, nil
		}
		again, after, err := c.act(ctx, s, &found)
		switch {
		case err != nil && ctx.Err() != nil:
			return 0, nil
		case err != nil:
			if !apierrors.IsConflict(err) {
				klog.FromContext(ctx).V(2).Info("Checking a workload that the leader may have missed failed, will retry",
					"kind", key.Kind, "workload", klog.KRef(key.Namespace, key.Name), "err", err)
			}
			return max(standbyPause, n.pace.failed(now, s.workload.ResourceVersion, err)), nil
		case !again:
			return max(after, standbyPause), nil
		}
		c.find(key, found.inspected)
	}
}

// find keeps the result of looking up the pods of a workload.
func (c *Controller) find(key dependency.WorkloadKey, found *policy.Inspection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.found[key] = found
}
