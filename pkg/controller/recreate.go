package controller

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
	"k8s.io/klog/v2"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
)

// recreatePause is how long to wait for a pod to be replaced before looking again, when
// nothing that happens to the workload makes us look earlier.
const recreatePause = 5 * time.Second

// maxEvictBefore is how far the time before which pods have to go may lie ahead, as clocks
// differ.
const maxEvictBefore = time.Minute

// recreate evicts the next pod of a workload that is being recreated: one at a time, and
// one that is ready only while all others are. Evictions respect PodDisruptionBudgets.
func (c *Controller) recreate(ctx context.Context, s *step) (time.Duration, error) {
	w := s.workload
	before, err := time.Parse(time.RFC3339, w.Annotations[policy.RecreatingAnnotation])
	if err != nil {
		return 0, c.endRecreate(ctx, s) // somebody has spoilt it: there is nothing to go by
	}
	wait := before.Sub(c.Clock.Now())
	switch {
	case wait > maxEvictBefore:
		return 0, c.endRecreate(ctx, s) // the same
	case wait > 0:
		return wait, nil
	}
	pods, err := c.podsOf(ctx, w)
	if err != nil {
		return 0, fmt.Errorf("listing the pods of %s %s/%s: %w", w.Kind, w.Namespace, w.Name, err)
	}
	next, ready := nextToGo(pods, before)
	switch {
	case next == nil:
		return 0, c.endRecreate(ctx, s)
	case next.DeletionTimestamp != nil:
		return recreatePause, nil
	case isReady(next) && (w.Rollout.Phase == dependency.RolloutRunning || ready < w.Replicas):
		return recreatePause, nil
	}
	eviction := &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: next.Namespace, Name: next.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &next.UID}},
	}
	err = c.Client.PolicyV1().Evictions(w.Namespace).Evict(ctx, eviction)
	switch {
	case err == nil, apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return recreatePause, nil
	case apierrors.IsTooManyRequests(err): // a PodDisruptionBudget
		klog.FromContext(ctx).V(2).Info("An eviction has to wait", "pod", klog.KRef(w.Namespace, next.Name), "err", err)
		return recreatePause, nil
	default:
		return 0, fmt.Errorf("evicting pod %s/%s: %w", w.Namespace, next.Name, err)
	}
}

// podsOf returns the pods of a workload that have not finished. Its selector may select
// pods of others too, such as those of a Job with the same labels.
func (c *Controller) podsOf(ctx context.Context, w *dependency.Workload) ([]corev1.Pod, error) {
	selector, err := metav1.LabelSelectorAsSelector(w.Selector)
	if err != nil {
		return nil, err
	}
	options := metav1.ListOptions{LabelSelector: selector.String()}
	controllers := []types.UID{w.UID}
	if w.Kind == dependency.Deployment {
		sets, err := c.Client.AppsV1().ReplicaSets(w.Namespace).List(ctx, options)
		if err != nil {
			return nil, err
		}
		controllers = nil
		for i := range sets.Items {
			if set := &sets.Items[i]; controls(w.UID, set) {
				controllers = append(controllers, set.UID)
			}
		}
	}
	pods, err := c.Client.CoreV1().Pods(w.Namespace).List(ctx, options)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool {
		owner := metav1.GetControllerOf(&p)
		finished := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
		return owner == nil || finished || !slices.Contains(controllers, owner.UID)
	}), nil
}

// nextToGo returns the pod that has to go next of those created before a time, or nil:
// first one that is ending already, then one that is not ready and serves nobody, so that
// pods that cannot become ready with old content do not hold up the others. Ready is the
// number of all pods that are.
func nextToGo(pods []corev1.Pod, before time.Time) (next *corev1.Pod, ready int32) {
	rank := func(p *corev1.Pod) int {
		switch {
		case p.DeletionTimestamp != nil:
			return 0
		case !isReady(p):
			return 1
		default:
			return 2
		}
	}
	for i := range pods {
		p := &pods[i]
		if rank(p) == 2 {
			ready++
		}
		if p.CreationTimestamp.Time.Before(before) && (next == nil || rank(p) < rank(next)) {
			next = p
		}
	}
	return next, ready
}

func isReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// abandon forgets that pods were to be evicted.
func (c *Controller) abandon(ctx context.Context, s *step) error {
	data, err := policy.AbandonedPatch(s.workload)
	if err != nil {
		return err
	}
	return c.patch(ctx, s, data)
}

func (c *Controller) endRecreate(ctx context.Context, s *step) error {
	data, err := policy.RecreatedPatch(s.workload)
	if err != nil {
		return err
	}
	return c.patch(ctx, s, data)
}
