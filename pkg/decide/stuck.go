// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"fmt"
	"time"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/judge"
)

// The controllers of StatefulSets and DaemonSets wait for a pod forever, and have no condition that says so. The StatefulSet controller does not even
// replace a pod of an earlier template that is not ready (kubernetes/kubernetes#67250).

// stuckTime is how long a rollout may have a pod that is not ready, and create no new pod, before it counts as not progressing. It is
// the default of progressDeadlineSeconds of a Deployment.
const stuckTime = 10 * time.Minute

// stuck is what a rollout waits for.
type stuck struct {
	pod *dependency.Pod // that is not ready for the longest time
	// since is when it became so, and newest is when the last pod was created.
	since, newest time.Time
	// older: the pod has an earlier template. left: some pod has.
	older, left bool
}

// add adds a pod.
func (s *stuck) add(e *Evaluation, j *judge.Judge, p *dependency.Pod) {
	w := e.Workload
	if !w.AwaitsPods {
		return
	}
	older := e.isOlder(j, p)
	s.left, s.newest = s.left || older, later(s.newest, p.Created)
	since := later(p.Created, p.Deleted)
	switch {
	case w.PerNode && (older || !p.Deleted.IsZero()): // it is replaced, whether or not it is ready
		return
	case !p.Deleted.IsZero():
	case !p.Ready.IsZero():
		return
	case p.Unready != 0:
		since = later(since, time.Unix(p.Unready, 0))
	}
	if s.pod == nil || since.Before(s.since) {
		s.pod, s.since, s.older = p, since, older
	}
}

// tellStuck completes a decision about a rollout that is not complete.
func (e *Evaluation) tellStuck(d *Decision, j *Judgement) {
	w, s := e.Workload, &j.stuck
	if s.pod == nil || !s.left || w.Rollout.Reason == dependency.ReasonNotObserved {
		return
	}
	if at := later(s.since, s.newest).Add(stuckTime); j.now.Before(at) {
		d.RecheckAt = at
		return
	}
	d.State, d.Reason = Failed, ReasonPodsNotReady
	since := s.since.UTC().Format(time.RFC3339)
	d.Message = "The rollout is not progressing: " + w.Rollout.Message + ". "
	switch {
	case !s.pod.Deleted.IsZero():
		d.Message += fmt.Sprintf("The %s waits for pod %s to end, which was due at %s. If its node is down for good, delete the pod by force.", w.Kind, s.pod.Name, since)
	case s.older:
		d.Message += fmt.Sprintf("The %s waits for pod %s, which has an earlier pod template and has not been ready since %s. It is not replaced before it is ready: delete it, so that it is created again.",
			w.Kind, s.pod.Name, since)
	default:
		d.Message += fmt.Sprintf("The %s waits for pod %s, which has the current pod template and has not been ready since %s. Fix the cause, or roll back.", w.Kind, s.pod.Name, since)
	}
}
