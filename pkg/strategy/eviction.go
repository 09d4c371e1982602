// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package strategy

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/workload"
)

// pause is how long to wait for a pod to be replaced before checking again, if no change
// of the workload causes an earlier check.
const pause = 5 * time.Second

// deadAfter is how long beyond its grace period a pod may be terminating before its node is regarded
// as dead.
const deadAfter = 2 * time.Minute

// eviction evicts the pods that existed when the restart began: one at a time, and a ready pod only while enough
// others are available. Evictions respect PodDisruptionBudgets.
type eviction struct{ rollout }

// Continue implements Effects.
func (eviction) Continue(ctx context.Context, client workload.Client, r *Restart) (Next, error) {
	evict, valid := policy.PodsToEvictOf(r.Workload)
	pods := survey{evict: evict, availability: r.availability()}
	if err := eachPod(ctx, client, r.Workload, pods.add); err != nil {
		return Next{}, err
	}
	next, available := pods.next, pods.available
	dead := int32(0)
	if !r.ReplacesTerminating {
		dead = r.Memory.dead(pods.ending, r.Now)
	}
	switch {
	case !valid:
		return Next{RollOut: true, Because: "another client changed the annotation " + policy.RecreatingAnnotation}, nil
	case next == nil:
		r.Memory.ending = nil
		return Next{Done: true}, nil
	case r.Superseded:
		return Next{RollOut: true}, nil
	case isReady(next) && available+dead < r.Replicas:
		return Next{After: pause, Waits: pods.some(available, r.Replicas)}, nil
	case isReady(next) && dead == 0 && r.Rollout.Phase == dependency.RolloutRunning:
		return Next{After: pause, Waits: r.Rollout.Message}, nil
	}
	err := client.PolicyV1().Evictions(r.Namespace).Evict(ctx, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: next.Namespace, Name: next.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &next.UID}},
	})
	switch {
	case err == nil, apierrors.IsNotFound(err), apierrors.IsConflict(err):
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

// availability counts pods as the controllers of workloads do.
type availability struct {
	now      time.Time
	minReady time.Duration
}

func (r *Restart) availability() availability { return availability{r.Now, r.MinReady} }

// isAvailable reports whether a pod has been ready for long enough. A time that is far in the future, of a clock that is wrong, says nothing:
// the others would wait for a pod that is ready.
func (a availability) isAvailable(p *corev1.Pod) bool {
	i := slices.IndexFunc(p.Status.Conditions, isReadyCondition)
	if i < 0 {
		return false
	}
	since := p.Status.Conditions[i].LastTransitionTime.Time
	return a.minReady == 0 || a.now.Sub(since) >= a.minReady || since.Sub(a.now) > dependency.ClockMargin
}

// some says how many pods are available.
func (a availability) some(available, all int32) string {
	what := "ready"
	if a.minReady > 0 {
		what = "available"
	}
	return dependency.SomePods(available, all, what)
}

// survey summarizes the pods of a workload, for the next step of an eviction.
type survey struct {
	availability

	evict policy.PodsToEvict
	// next is the pod to evict next, or nil. Pods that are not ready come first: they serve no
	// requests, and those that cannot become ready with old content must not hold up the others.
	next *corev1.Pod
	// available is how many pods are available and stay.
	available int32
	ending    []endingPod
}

type endingPod struct {
	uid   types.UID
	grace int64 // in seconds
}

// add adds a pod. One that is terminating needs no eviction.
func (s *survey) add(p *corev1.Pod) {
	if p.DeletionTimestamp != nil {
		s.ending = append(s.ending, endingPod{p.UID, ptr.Deref(p.DeletionGracePeriodSeconds, 0)})
		return
	}
	if s.isAvailable(p) {
		s.available++
	}
	if s.evict.Has(p.UID) && (s.next == nil || isReady(s.next) && !isReady(p)) {
		s.next = p.DeepCopy()
	}
}

// dead counts the pods that have been terminating for too long. They are on dead nodes, and are not
// replaced until they are removed. How long they have been terminating is measured by this server's
// clock, because the clock of the API server, which sets the time of deletion, may differ.
func (m *Memory) dead(pods []endingPod, now time.Time) (n int32) {
	ending := map[types.UID]time.Time{}
	for _, p := range pods {
		since, seen := m.ending[p.uid]
		if !seen {
			since = now
		}
		ending[p.uid] = since
		if now.Sub(since).Seconds() > float64(p.grace)+deadAfter.Seconds() {
			n++
		}
	}
	m.ending = ending
	return n
}

func isReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, isReadyCondition)
}

func isReadyCondition(c corev1.PodCondition) bool {
	return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
}
