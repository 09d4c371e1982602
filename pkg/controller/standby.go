package controller

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
)

// standbyPause is for how long a doubt is left to the leader, which looks at pods within seconds.
const standbyPause = 30 * time.Second

// StandBy looks after what this replica has seen and the leader may have missed, as it was cut off or has started since:
// content that changed and changed back. If nothing has been recorded of that after standbyPause, it looks at the pods
// itself and records what it finds, so that the leader restarts the workload if any has read the other content. It
// goes on until the context is done, and must not be called beside Run.
func (c *Controller) StandBy(ctx context.Context, graph Graph) {
	c.serve(ctx, graph, 1, false)
}

// assist handles one workload while another replica leads. It returns after which time to do so again; 0: when it has
// changed.
func (c *Controller) assist(ctx context.Context, graph Graph, key dependency.WorkloadKey) (time.Duration, error) {
	var found findings
	for {
		s := c.decide(graph, key, found)
		if s == nil {
			return 0, nil
		}
		n, now := c.note(key), c.Clock.Now()
		if !s.forStandby(n, found) {
			n.doubted = time.Time{}
			return 0, nil
		}
		if n.doubted.IsZero() {
			n.doubted = now
		}
		if wait := max(n.doubted.Add(standbyPause).Sub(now), n.pace.wait(now, s.workload.ResourceVersion)); wait > 0 {
			return wait, nil
		}
		again, after, err := c.act(ctx, s, &found)
		switch {
		case err != nil && ctx.Err() != nil:
			return 0, nil
		case err != nil:
			if !apierrors.IsConflict(err) {
				klog.FromContext(ctx).V(2).Info("Looking after what the leader may have missed, will try again",
					"kind", key.Kind, "workload", klog.KRef(key.Namespace, key.Name), "err", err)
			}
			return max(standbyPause, n.pace.failed(now, s.workload.ResourceVersion, err)), nil
		case !again:
			return max(after, standbyPause), nil
		}
	}
}

// forStandby reports whether a step is one that a replica takes which does not lead: to look at pods because of what it
// has seen itself, and to record what it has found. It must not record other content than is recorded, of which it may
// know less than the leader.
func (s *step) forStandby(n *note, found findings) bool {
	switch s.Action {
	case policy.Inspect:
		return found.inspected == nil
	case policy.WriteMixed:
		return found.inspected != nil
	case policy.WriteVerified:
		return found.inspected != nil && n.record == s.present.Hash
	default:
		return false
	}
}
