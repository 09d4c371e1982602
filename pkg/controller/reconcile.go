package controller

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/metrics"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/workload"
)

// step is a decision with all that is needed to carry it out.
type step struct {
	policy.Decision
	workload *dependency.Workload
	policy   policy.Policy
	present  policy.Record
}

// reconcile handles one workload. It returns after which time to do so again, if time
// alone changes what is to be done. A worker handles a workload at a time, so that its
// note needs no lock.
func (c *Controller) reconcile(ctx context.Context, graph Graph, key dependency.WorkloadKey) (time.Duration, error) {
	var verified *bool
	for {
		s := c.decide(graph, key, verified)
		if s == nil {
			return 0, nil
		}
		var err error
		switch s.Action {
		case policy.WriteBaseline:
			err = c.baseline(ctx, s)
		case policy.RollOut:
			err = c.rollOut(ctx, s)
		case policy.Continue:
			return c.recreate(ctx, s)
		case policy.Abandon:
			err = c.abandon(ctx, s)
		case policy.Verify:
			var newer bool
			if newer, err = c.revisionIsNewer(ctx, s); err == nil {
				verified = &newer
				continue
			}
		}
		if err != nil {
			return 0, err
		}
		if s.RecheckAt.IsZero() {
			return 0, nil
		}
		return max(time.Millisecond, s.RecheckAt.Sub(c.Clock.Now())), nil
	}
}

// decide asks what is to be done; nil: nothing, or nothing yet.
func (c *Controller) decide(graph Graph, key dependency.WorkloadKey, verified *bool) (s *step) {
	graph.Read(func(g *dependency.Graph) {
		w := g.Workload(key)
		if w == nil {
			c.forget(key)
			return
		}
		n := c.note(key)
		if version(w.ResourceVersion) < n.written {
			return // our own write is on its way, and puts the workload into the queue
		}
		e := policy.Evaluate(g, c.Digester(), w, c.Defaults)
		if n.record != e.Record.Hash { // another has restarted it meanwhile
			n.record, n.staleSince = e.Record.Hash, time.Time{}
		}
		s = &step{workload: w, policy: e.Policy}
		s.Decision = e.Decide(policy.Observed{Now: c.Clock.Now(), StaleSince: n.staleSince, Verified: verified})
		switch {
		case !s.Stale, s.State == policy.Blocked: // nobody waits for it to settle
			n.staleSince = time.Time{}
		case n.staleSince.IsZero():
			n.staleSince = c.Clock.Now()
		}
		if s.Action != policy.None {
			s.present = e.Present()
		}
		c.tellBlocked(n, s)
	})
	return s
}

// baseline records the present content on the workload. Its pods are not restarted.
func (c *Controller) baseline(ctx context.Context, s *step) error {
	data, err := policy.BaselinePatch(s.workload, s.present)
	if err != nil {
		return err
	}
	return c.patch(ctx, s, data)
}

// rollOut restarts the pods of the workload.
func (c *Controller) rollOut(ctx context.Context, s *step) error {
	w, now := s.workload, c.Clock.Now()
	last := policy.Automatic(policy.LastReloadOf(w), now, s.policy.MinInterval, s.Trigger)
	// After a rollback the template may carry the hash already.
	always := w.TemplateAnnotations[policy.ConfigHashAnnotation] == s.present.Hash
	data, err := s.policy.RestartPatch(w, s.present, last, always)
	if err == nil {
		err = c.patch(ctx, s, data)
	}
	trigger, _, _ := strings.Cut(s.Trigger, "/")
	switch {
	case err == nil:
		c.note(w.WorkloadKey).staleSince = time.Time{}
		metrics.Rollout(string(w.Kind), w.Namespace, metrics.Success, trigger)
		if !s.DueAt.IsZero() {
			metrics.PatchDelay(c.Clock.Since(s.DueAt))
		}
		klog.FromContext(ctx).Info("Restarted a workload", "kind", w.Kind, "workload", klog.KRef(w.Namespace, w.Name), "trigger", s.Trigger)
		c.event(w, corev1.EventTypeNormal, "ConfigReloaded", "Restarted because "+s.Because)
	case apierrors.IsConflict(err):
		metrics.Rollout(string(w.Kind), w.Namespace, metrics.Conflict, trigger)
	case apierrors.IsNotFound(err):
		return nil // deleted meanwhile
	case ctx.Err() != nil: // not refused: we do not lead any more
	default:
		metrics.Rollout(string(w.Kind), w.Namespace, metrics.Error, trigger)
		c.event(w, corev1.EventTypeWarning, "ConfigReloadFailed", fmt.Sprintf("The restart because %s was refused and is tried again: %v", s.Because, err))
	}
	return err
}

// patch sends a patch and notes its version.
func (c *Controller) patch(ctx context.Context, s *step, data []byte) error {
	patched, err := workload.Patch(ctx, c.Client, s.workload.WorkloadKey, data, nil)
	if err != nil {
		return err
	}
	c.note(s.workload.WorkloadKey).written = version(patched.GetResourceVersion())
	return nil
}

// tellBlocked leaves an event when a workload that should be restarted by itself cannot
// be, once for each cause.
func (c *Controller) tellBlocked(n *note, s *step) {
	told := ""
	if s.State == policy.Blocked {
		told = s.Message
	}
	if told == n.told {
		return
	}
	n.told = told
	switch {
	case told == "":
	case s.Reason == policy.ReasonInvalidAnnotation:
		c.event(s.workload, corev1.EventTypeWarning, "InvalidAnnotation", told)
	case s.Reason == policy.ReasonSourceMissing, s.Reason == policy.ReasonKeyMissing:
		c.event(s.workload, corev1.EventTypeWarning, "ConfigSourceMissing", told)
	}
}

func (c *Controller) event(w *dependency.Workload, eventType, reason, message string) {
	c.Recorder.Event(&corev1.ObjectReference{
		APIVersion: w.Kind.GroupVersion().String(), Kind: string(w.Kind), Namespace: w.Namespace, Name: w.Name, UID: w.UID,
	}, eventType, reason, message)
}

// version parses a resourceVersion; one that is no number is as good as none.
func version(s string) uint64 {
	v, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0
	}
	return v
}
