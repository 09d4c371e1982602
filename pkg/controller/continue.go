// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/notify"
	"github.com/configdep/configdep/pkg/record"
	"github.com/configdep/configdep/pkg/strategy"
)

const (
	// waitPause is the time between steps that a PodDisruptionBudget refuses, however often the workload and its pods change: each asks the API
	// server.
	waitPause = time.Second
	// waitShare limits how much longer than necessary a restart waits: to the time that it has waited, divided by waitShare, and to longestWait.
	waitShare   = 24
	longestWait = time.Minute
	// tellAfter is how long a restart waits before an event says what for: replacing a pod takes a moment.
	tellAfter = time.Minute
)

// continueRestart takes the next step of a restart that is under way. It returns after which time to take another one.
func (c *Controller) continueRestart(ctx context.Context, s *step) (time.Duration, error) {
	underWay := record.UnderWay(s.workload)
	n := c.note(s.workload.WorkloadKey)
	n.refused = time.Time{}
	next, err := strategy.Of(underWay).Continue(ctx, c.Client, &strategy.Restart{
		Workload: s.workload, Pods: s.pods, Pod: s.pod, Revision: s.revision, Hash: s.present.Hash, Superseded: underWay != s.policy.RestartsBy(s.workload), Now: c.Clock.Now(), Memory: &n.restart, Budgets: &c.budgets, Digester: s.digester,
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
	case next.Done, next.RollOut && s.workload.Replicas == 0:
		return 0, c.endRestart(ctx, s)
	case next.RollOut:
		s.Action = decide.RollOut
		if next.Because != "" {
			s.Because = next.Because
		}
		return c.rollOut(ctx, s)
	case next.Failed != "":
		c.notify(s.workload, notify.RestartFailed, next.Failed)
	case next.Waits != "":
		c.tellWaits(s, underWay, next.Waits, next.Why)
		now := c.Clock.Now()
		if next.Why != "" { // a PodDisruptionBudget, of which no change is seen
			n.refused, next.After = now, min(max(next.After, now.Sub(n.waitsSince)/waitShare), longestWait)
		}
		if tell := n.waitsSince.Add(tellAfter).Sub(now); !n.waitsTold && (next.After == 0 || tell < next.After) {
			next.After = tell
		}
	default:
		n.waits = ""
	}
	return next.After, nil
}

// pod returns a pod in the namespace of the workload; nil: there is none.
func (s *step) pod(name string) *dependency.Pod {
	return s.graph.Pod(dependency.PodKey{Namespace: s.workload.Namespace, Name: name})
}

// recordProgress records how far a restart is. What follows is decided when that has come back through the index.
func (c *Controller) recordProgress(ctx context.Context, s *step, next *strategy.Next) error {
	progress := next.InPlace.Progress
	data, err := progress.ProgressPatch(s.workload)
	s.progress = progress.Text()
	if err := c.patch(ctx, s, data, err); err != nil {
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

// tellWaits sends an event if a restart has been waiting for the same thing for a while. Why may differ each time.
func (c *Controller) tellWaits(s *step, by record.Strategy, what, why string) {
	n, now := c.note(s.workload.WorkloadKey), c.Clock.Now()
	switch {
	case n.waits != what:
		n.waits, n.waitsSince, n.waitsTold = what, now, false
	case !n.waitsTold && now.Sub(n.waitsSince) >= tellAfter:
		n.waitsTold = true
		if why = strings.TrimSuffix(why, "."); why != "" {
			what += " (" + why + ")"
		}
		c.notify(s.workload, notify.RestartWaits, by.Progress().Waits+": "+what+".")
	}
}

func (c *Controller) endRestart(ctx context.Context, s *step) error {
	data, err := record.EndPatch(s.workload)
	if err := c.patch(ctx, s, data, err); err != nil {
		return fmt.Errorf("recording that the restart is complete: %w", err)
	}
	return nil
}
