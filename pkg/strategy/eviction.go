// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package strategy

import (
	"context"
	"fmt"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/record"
	"github.com/configdep/configdep/pkg/workload"
)

// pause is how long to wait before something that may have been lost, or that no event tells, is tried again.
const pause = 5 * time.Second

// deadAfter is how long beyond its grace period a pod may be terminating before its node is regarded
// as dead.
const deadAfter = 2 * time.Minute

// eviction evicts the pods that existed when the restart began: one at a time, and a ready pod only while enough
// others are available. Evictions respect PodDisruptionBudgets.
type eviction struct{ rollout }

// Continue implements Effects.
func (eviction) Continue(ctx context.Context, client workload.Client, r *Restart) (Next, error) {
	evict, valid := record.PodsToEvictOf(r.Workload)
	pods := survey{evict: evict, availability: r.availability()}
	for _, p := range r.Pods {
		pods.add(p)
	}
	next, available := pods.next, pods.available
	dead := r.dead(&pods.availability, pods.ending)
	switch {
	case !valid:
		return Next{RollOut: true, Because: "another client changed the annotation " + record.RecreatingAnnotation}, nil
	case next == nil:
		r.Memory.ending = nil
		return Next{Done: true}, nil
	case r.Superseded:
		return Next{RollOut: true}, nil
	case !next.Ready.IsZero() && available+dead < r.Replicas:
		return Next{After: pods.after(), Waits: pods.some(available, r.Replicas)}, nil
	case !next.Ready.IsZero() && dead == 0 && r.Rollout.Phase == dependency.RolloutRunning:
		return Next{After: pods.after(), Waits: r.Rollout.Message}, nil
	}
	wait := r.Memory.awaits(next, r.Now)
	if next.Ready.IsZero() { // nothing else keeps these from being evicted at once
		wait = r.Memory.last.at.Add(pause).Sub(r.Now)
	}
	if wait > 0 {
		return Next{After: wait}, nil
	}
	err := client.PolicyV1().Evictions(r.Namespace).Evict(ctx, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: next.Namespace, Name: next.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &next.UID}},
	})
	switch {
	case err == nil, apierrors.IsNotFound(err), apierrors.IsConflict(err):
		r.Memory.acted(next, r.Now)
		return Next{After: pause}, nil
	case apierrors.IsTooManyRequests(err):
		return Next{After: pause, Waits: "the API server refuses to evict pod " + next.Name + " for now", Why: refusal(err)}, nil
	default:
		return Next{}, fmt.Errorf("evicting pod %s/%s: %w", r.Namespace, next.Name, err)
	}
}

// refusal returns why an eviction was refused with 429: the cause names the PodDisruptionBudget.
func refusal(err error) string {
	if cause, found := apierrors.StatusCause(err, policyv1.DisruptionBudgetCause); found {
		return cause.Message
	}
	return err.Error()
}

// acted notes that something was done to a pod, in the version that was known.
func (m *Memory) acted(p *dependency.Pod, now time.Time) {
	m.last.uid, m.last.version, m.last.at = p.UID, p.Version, now
}

// awaits returns for how long to wait until it is known what has become of a pod to which something was done; 0: it is, or may never be.
func (m *Memory) awaits(p *dependency.Pod, now time.Time) time.Duration {
	if p.UID != m.last.uid || p.Version != m.last.version {
		return 0
	}
	return max(0, m.last.at.Add(pause).Sub(now))
}

// availability counts pods as the controllers of workloads do.
type availability struct {
	now      time.Time
	minReady time.Duration
	// next is when time alone changes what is counted; zero: it does not.
	next time.Time
}

func (r *Restart) availability() availability { return availability{now: r.Now, minReady: r.MinReady} }

// changes notes that time alone changes something then.
func (a *availability) changes(at time.Time) {
	if at.After(a.now) && (a.next.IsZero() || at.Before(a.next)) {
		a.next = at
	}
}

// after returns after which time to look again; 0: time alone changes nothing.
func (a *availability) after() time.Duration {
	if a.next.IsZero() {
		return 0
	}
	return a.next.Sub(a.now)
}

// isAvailable reports whether a pod has been ready for long enough. A time that is far in the future, of a clock that is wrong, says nothing:
// the others would wait for a pod that is ready.
func (a *availability) isAvailable(p *dependency.Pod) bool {
	if p.Ready.IsZero() {
		return false
	}
	if a.minReady == 0 || a.now.Sub(p.Ready) >= a.minReady || p.Ready.Sub(a.now) > dependency.MaxClockSkew {
		return true
	}
	a.changes(p.Ready.Add(a.minReady))
	return false
}

// some says how many pods are available.
func (a *availability) some(available, all int32) string {
	what := "ready"
	if a.minReady > 0 {
		what = "available"
	}
	return dependency.SomePods(available, all, what)
}

// survey summarizes the pods of a workload, for the next step of an eviction.
type survey struct {
	availability

	evict record.PodsToEvict
	// next is the pod to evict next, or nil. Pods that are not ready come first: they serve no
	// requests, and those that cannot become ready with old content must not hold up the others.
	next *dependency.Pod
	// available is how many pods are available and stay.
	available int32
	ending    []*dependency.Pod
}

// add adds a pod. One that is terminating needs no eviction.
func (s *survey) add(p *dependency.Pod) {
	if !p.Deleted.IsZero() {
		s.ending = append(s.ending, p)
		return
	}
	if s.isAvailable(p) {
		s.available++
	}
	if s.evict.Has(p.UID) && (s.next == nil || !s.next.Ready.IsZero() && p.Ready.IsZero()) {
		s.next = p
	}
}

// dead counts the pods that have been terminating for too long, if they are not replaced before they are removed: they are on dead nodes. How
// long they have been terminating is measured by this server's clock, because the clock of the API server, which sets the time of deletion,
// may differ.
func (r *Restart) dead(a *availability, pods []*dependency.Pod) (n int32) {
	if r.ReplacesTerminating {
		return 0
	}
	ending := map[types.UID]time.Time{}
	for _, p := range pods {
		since, seen := r.Memory.ending[p.UID]
		if !seen {
			since = r.Now
		}
		ending[p.UID] = since
		switch grace := time.Duration(min(p.Grace, maxGrace)) * time.Second; {
		case p.Grace > maxGrace:
		case r.Now.After(since.Add(grace + deadAfter)):
			n++
		default:
			a.changes(since.Add(grace + deadAfter + 1))
		}
	}
	r.Memory.ending = ending
	return n
}

// maxGrace is the longest grace period after which a pod may be dead, in seconds.
const maxGrace = int64(365 * 24 * time.Hour / time.Second)
