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
	"k8s.io/klog/v2"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
)

// recreatePause is how long to wait for a pod to be replaced before looking again, when
// nothing that happens to the workload makes us look earlier.
const recreatePause = 5 * time.Second

// evictBefore returns the time before which a pod has to have been created to be
// evicted. Creation times are whole seconds: pods are evicted once the present one is
// over, so that those that replace them are newer.
func evictBefore(now time.Time) time.Time { return now.Truncate(time.Second).Add(time.Second) }

// recreate evicts the next pod of a workload that is being recreated: one at a time, and
// only while all others are available. Evictions respect PodDisruptionBudgets.
func (c *Controller) recreate(ctx context.Context, s *step) (time.Duration, error) {
	w := s.workload
	before, err := time.Parse(time.RFC3339, w.Annotations[policy.RecreatingAnnotation])
	if err != nil {
		return 0, c.endRecreate(ctx, s) // somebody has spoilt it: there is nothing to go by
	}
	if wait := before.Sub(c.Clock.Now()); wait > 0 {
		return wait, nil
	}
	old, err := c.oldPods(ctx, w, before)
	switch {
	case err != nil:
		return 0, fmt.Errorf("listing the pods of %s %s/%s: %w", w.Kind, w.Namespace, w.Name, err)
	case len(old) == 0:
		return 0, c.endRecreate(ctx, s)
	case w.Rollout.Phase == dependency.RolloutRunning || old[0].DeletionTimestamp != nil:
		return recreatePause, nil
	}
	eviction := &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: old[0].Namespace, Name: old[0].Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &old[0].UID}},
	}
	err = c.Client.PolicyV1().Evictions(w.Namespace).Evict(ctx, eviction)
	switch {
	case err == nil, apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return recreatePause, nil
	case apierrors.IsTooManyRequests(err): // a PodDisruptionBudget
		klog.FromContext(ctx).V(2).Info("An eviction has to wait", "pod", klog.KRef(w.Namespace, old[0].Name), "err", err)
		return recreatePause, nil
	default:
		return 0, fmt.Errorf("evicting pod %s/%s: %w", w.Namespace, old[0].Name, err)
	}
}

// oldPods returns the pods of a workload that were created before a time; those that are
// already ending come first.
func (c *Controller) oldPods(ctx context.Context, w *dependency.Workload, before time.Time) ([]corev1.Pod, error) {
	selector, err := metav1.LabelSelectorAsSelector(w.Selector)
	if err != nil {
		return nil, err
	}
	pods, err := c.Client.CoreV1().Pods(w.Namespace).List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil {
		return nil, err
	}
	old := slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool {
		return !p.CreationTimestamp.Time.Before(before) || metav1.GetControllerOf(&p) == nil
	})
	slices.SortStableFunc(old, func(a, b corev1.Pod) int {
		switch {
		case a.DeletionTimestamp != nil && b.DeletionTimestamp == nil:
			return -1
		case a.DeletionTimestamp == nil && b.DeletionTimestamp != nil:
			return 1
		default:
			return 0
		}
	})
	return old, nil
}

func (c *Controller) endRecreate(ctx context.Context, s *step) error {
	data, err := policy.RecreatedPatch(s.workload)
	if err != nil {
		return err
	}
	return c.patch(ctx, s, data)
}
