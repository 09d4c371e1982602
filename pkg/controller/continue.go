// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/notify"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/workload"
)

// recreatePause is how long to wait for a pod to be replaced before looking again, when
// nothing that happens to the workload makes us look earlier.
const recreatePause = 5 * time.Second

// deadAfter is how long beyond its grace period a pod may be terminating until its node is taken for
// dead.
const deadAfter = 2 * time.Minute

// recreate evicts the next pod of a workload that is being recreated: one at a time, and
// one that is ready only while enough others are. Evictions respect PodDisruptionBudgets.
func (c *Controller) recreate(ctx context.Context, s *step) (time.Duration, error) {
	w := s.workload
	evict, valid := policy.PodsToEvictOf(w)
	pods := survey{evict: evict}
	if err := c.eachPod(ctx, w, pods.add); err != nil {
		return 0, err
	}
	next, ready := pods.next, pods.ready
	dead := int32(0)
	if !w.ReplacesTerminating {
		dead = c.note(w.WorkloadKey).deadPods(pods.ending, c.Clock.Now())
	}
	switch {
	case !valid:
		s.Action, s.Because = policy.RollOut, "another client changed the annotation "+policy.RecreatingAnnotation
		return 0, c.rollOut(ctx, s)
	case next == nil:
		return 0, c.endRecreate(ctx, s)
	case !s.policy.Recreates(): // the strategy was changed meanwhile
		s.Action = policy.RollOut
		return 0, c.rollOut(ctx, s)
	case isReady(next) && ready+dead < w.Replicas:
		c.tellWaits(s, dependency.SomePods(ready, w.Replicas, "ready"), "")
		return recreatePause, nil
	case isReady(next) && dead == 0 && w.Rollout.Phase == dependency.RolloutRunning:
		c.tellWaits(s, w.Rollout.Message, "")
		return recreatePause, nil
	}
	eviction := &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: next.Namespace, Name: next.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &next.UID}},
	}
	err := c.Client.PolicyV1().Evictions(w.Namespace).Evict(ctx, eviction)
	switch {
	case err == nil, apierrors.IsNotFound(err), apierrors.IsConflict(err):
		c.note(w.WorkloadKey).waits = ""
		return recreatePause, nil
	case apierrors.IsTooManyRequests(err):
		c.tellWaits(s, "the API server refuses to evict pod "+next.Name+" for now", refusal(err))
		return recreatePause, nil
	default:
		return 0, fmt.Errorf("evicting pod %s/%s: %w", w.Namespace, next.Name, err)
	}
}

// refusal returns why an eviction was refused with 429: the cause names the PodDisruptionBudget.
func refusal(err error) string {
	if cause, found := apierrors.StatusCause(err, policyv1.DisruptionBudgetCause); found {
		return cause.Message
	}
	return err.Error()
}

// tellWaits leaves an event when an eviction has been waiting for the same thing for a
// minute: that a pod is replaced takes a moment. Why may differ each time.
func (c *Controller) tellWaits(s *step, what, why string) {
	n, now := c.note(s.workload.WorkloadKey), c.Clock.Now()
	switch {
	case n.waits != what:
		n.waits, n.waitsSince, n.waitsTold = what, now, false
	case !n.waitsTold && now.Sub(n.waitsSince) >= time.Minute:
		n.waitsTold = true
		if why = strings.TrimSuffix(why, "."); why != "" {
			what += " (" + why + ")"
		}
		c.notify(s.workload, notify.RestartWaits, "The next pod will be evicted later: "+what+".")
	}
}

// eachPod calls f for the pods of a workload, in the order of their names. A pod is valid during
// the call.
func (c *Controller) eachPod(ctx context.Context, w *dependency.Workload, f func(*corev1.Pod)) error {
	selected, err := workload.Select(ctx, c.Client, w, false)
	if err == nil {
		_, err = selected.Each(ctx, c.Client, workload.AllPods, f)
	}
	if err != nil {
		return fmt.Errorf("listing the pods of %s %s/%s: %w", w.Kind, w.Namespace, w.Name, err)
	}
	return nil
}

// survey is what an eviction depends on, of the pods of a workload.
type survey struct {
	evict policy.PodsToEvict
	// next is the pod to evict next, or nil. Pods that are not ready come first: they serve no
	// requests, and those that cannot become ready with old content must not hold up the others.
	next *corev1.Pod
	// ready is how many pods are ready and stay.
	ready  int32
	ending []endingPod
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
	if isReady(p) {
		s.ready++
	}
	if s.evict.Has(p.UID) && (s.next == nil || isReady(s.next) && !isReady(p)) {
		s.next = p.DeepCopy()
	}
}

// deadPods counts the pods that have been terminating for too long. They are on dead nodes, and are not
// replaced until they are removed. How long they have been terminating is measured by this server's
// clock, because that of the API server, which dates their deletion, may differ.
func (n *note) deadPods(pods []endingPod, now time.Time) (dead int32) {
	ending := map[types.UID]time.Time{}
	for _, p := range pods {
		since, seen := n.ending[p.uid]
		if !seen {
			since = now
		}
		ending[p.uid] = since
		if now.Sub(since).Seconds() > float64(p.grace)+deadAfter.Seconds() {
			dead++
		}
	}
	n.ending = ending
	return dead
}

func isReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

func (c *Controller) endRecreate(ctx context.Context, s *step) error {
	c.note(s.workload.WorkloadKey).ending = nil
	data, err := policy.RecreatedPatch(s.workload)
	if err == nil {
		err = c.patch(ctx, s, data)
	}
	if err != nil {
		return fmt.Errorf("recording that all pods have been evicted: %w", err)
	}
	return nil
}
