// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/configdep/configdep/pkg/notify"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/strategy"
)

const (
	// waitPause is the time between steps that are not due, however often the workload changes: a step may list thousands of pods. The first
	// change since a step that was due, or that made progress, need not wait for that.
	waitPause = time.Second
	// waitShare limits how much longer a restart waits than it has to: by the time that it has waited, divided by this, and by longestWait.
	waitShare   = 24
	longestWait = time.Minute
)

// continueRestart takes the next step of a restart that is under way. It returns after which time to take another one.
func (c *Controller) continueRestart(ctx context.Context, s *step) (time.Duration, error) {
	underWay := policy.UnderWay(s.workload)
	n := c.note(s.workload.WorkloadKey)
	early := c.Clock.Now().Before(n.due)
	n.due, n.hurried = time.Time{}, time.Time{}
	next, err := strategy.Of(underWay).Continue(ctx, c.Client, &strategy.Restart{
		Workload: s.workload, Superseded: underWay != s.policy.RestartsBy(s.workload), Now: c.Clock.Now(), Memory: &n.restart, Budgets: &c.budgets, Digester: s.digester,
	})
	switch found := next.InPlace; {
	case err != nil:
		return 0, err
	case found == nil:
	case found.Progress != nil:
		n.waits = ""
		return 0, c.recordProgress(ctx, s, &next)
	default:
		c.tellPods(s, found.Pods)
	}
	switch {
	case next.RollOut:
		s.Action = policy.RollOut
		if next.Because != "" {
			s.Because = next.Because
		}
		return c.rollOut(ctx, s)
	case next.Done:
		return 0, c.endRestart(ctx, s)
	case next.Failed != "":
		c.notify(s.workload, notify.RestartFailed, next.Failed)
	case next.Waits != "":
		c.tellWaits(s, underWay, next.Waits, next.Why)
		if next.Why != "" { // a PodDisruptionBudget, of which no change is seen
			next.After = min(max(next.After, c.Clock.Since(n.waitsSince)/waitShare), longestWait)
		}
	default:
		n.waits = ""
	}
	now := c.Clock.Now()
	if n.due = now.Add(next.After); early {
		n.hurried = now
	}
	return next.After, nil
}

// recordProgress records how far a restart is. What follows is decided when that has come back through the index.
func (c *Controller) recordProgress(ctx context.Context, s *step, next *strategy.Next) error {
	progress := next.InPlace.Progress
	data, err := progress.ProgressPatch(s.workload)
	if err == nil {
		s.progress = progress.Text()
		err = c.patch(ctx, s, data)
	}
	if err != nil {
		return fmt.Errorf("recording how far the restart is: %w", err)
	}
	c.tellPods(s, next.InPlace.Pods)
	if next.Failed != "" {
		c.notify(s.workload, notify.RestartFailed, next.Failed)
	}
	return nil
}

// tellPods sends events about pods that are restarted in place, because the kubelet sends none.
func (c *Controller) tellPods(s *step, pods []strategy.PodStep) {
	for _, p := range pods {
		e := notify.Event{
			What: notify.PodRestarting, Message: "Told to restart all containers in place, for the current content",
			Workload: s.workload.WorkloadKey, UID: s.workload.UID, Pod: &notify.Pod{Name: p.Name, UID: p.UID},
		}
		if p.Back {
			e.What, e.Message = notify.PodRestarted, "All containers have restarted in place, with the current content"
		}
		c.Sink.Notify(e)
	}
}

// tellWaits sends an event if a restart has been waiting for the same thing for a minute:
// replacing a pod takes a moment. Why may differ each time.
func (c *Controller) tellWaits(s *step, by policy.Strategy, what, why string) {
	n, now := c.note(s.workload.WorkloadKey), c.Clock.Now()
	switch {
	case n.waits != what:
		n.waits, n.waitsSince, n.waitsTold = what, now, false
	case !n.waitsTold && now.Sub(n.waitsSince) >= time.Minute:
		n.waitsTold = true
		if why = strings.TrimSuffix(why, "."); why != "" {
			what += " (" + why + ")"
		}
		c.notify(s.workload, notify.RestartWaits, by.Progress().Waits+": "+what+".")
	}
}

func (c *Controller) endRestart(ctx context.Context, s *step) error {
	data, err := policy.EndPatch(s.workload)
	if err == nil {
		err = c.patch(ctx, s, data)
	}
	if err != nil {
		return fmt.Errorf("recording that the restart is complete: %w", err)
	}
	return nil
}
