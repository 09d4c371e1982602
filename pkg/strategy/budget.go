// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package strategy

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/record"
	"github.com/configdep/configdep/pkg/workload"
)

// budget is the PodDisruptionBudget of a pod. The zero value has no name: there is none.
type budget struct {
	policyv1.PodDisruptionBudget

	selector labels.Selector
	other    string // the name of another one of the same pod; empty: there is none
}

// budgetOf returns the PodDisruptionBudget of a pod.
func budgetOf(ctx context.Context, client workload.Client, p *dependency.Pod) (b budget, err error) {
	var of labels.Set // of the pod, which are not kept; nil: they have not been read, because there was no budget
	budgets := client.PolicyV1().PodDisruptionBudgets(p.Namespace)
	items := func(l *policyv1.PodDisruptionBudgetList) []policyv1.PodDisruptionBudget { return l.Items }
	err = workload.Each(ctx, client.Pages, metav1.ListOptions{}, budgets.List, items, func(found *policyv1.PodDisruptionBudget) (bool, error) {
		if of == nil {
			if of, err = labelsOf(ctx, client, p); err != nil {
				return false, err
			}
		}
		selector, err := metav1.LabelSelectorAsSelector(found.Spec.Selector)
		switch {
		case err != nil || !selector.Matches(of):
		case b.selector == nil:
			b.PodDisruptionBudget, b.selector = *found, selector
		default:
			b.other = found.Name
		}
		return b.other == "", nil
	})
	return b, err
}

// labelsOf returns the labels of a pod; if it is gone, there are none.
func labelsOf(ctx context.Context, client workload.Client, p *dependency.Pod) (labels.Set, error) {
	found, err := client.CoreV1().Pods(p.Namespace).List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, p.Name).String()})
	if err != nil {
		return nil, err
	}
	out := labels.Set{}
	for i := range found.Items {
		if found.Items[i].UID == p.UID {
			maps.Copy(out, found.Items[i].Labels)
		}
	}
	return out, nil
}

// protects says what keeps a pod from becoming unavailable, by the rules by which the API server refuses evictions; empty: nothing does.
// Why says more. The status alone is not enough: it counts a pod that has just been told until that is no longer ready.
func (b *budget) protects(ctx context.Context, client workload.Client, r *Restart, p *dependency.Pod) (waits, why string, err error) {
	does := "PodDisruptionBudget " + b.Name + " does not allow that pod " + p.Name + " becomes unavailable"
	switch {
	case b.selector == nil:
		return "", "", nil
	case b.other != "":
		return "pod " + p.Name + " has more than one PodDisruptionBudget", fmt.Sprintf("%s and %s, for example", b.Name, b.other), nil
	case b.Status.ObservedGeneration < b.Generation:
		return "PodDisruptionBudget " + b.Name + " has changed, and its controller has not observed that yet", "", nil
	case b.Status.DisruptionsAllowed < 1:
		return does, fmt.Sprintf("it needs %d healthy pods and has %d", b.Status.DesiredHealthy, b.Status.CurrentHealthy), nil
	}
	healthy, leave, err := b.count(ctx, client, r, p)
	if err != nil || healthy-leave > b.Status.DesiredHealthy {
		return "", "", err
	}
	return does, fmt.Sprintf("it needs %d healthy pods and has %d, of which %d are being evicted or restarted", b.Status.DesiredHealthy, healthy, leave), nil
}

// count counts the pods that are healthy now, and those of them, apart from one pod, that are about to become unavailable: they are being
// evicted, or have been told to restart in place. Each workload has told one at most, but several may share the budget. It stops once enough
// pods are left.
func (b *budget) count(ctx context.Context, client workload.Client, r *Restart, apart *dependency.Pod) (healthy, leave int32, err error) {
	options, pods := metav1.ListOptions{LabelSelector: b.selector.String()}, client.CoreV1().Pods(b.Namespace)
	err = workload.Each(ctx, client.Pages, options, pods.List, func(l *corev1.PodList) []corev1.Pod { return l.Items }, func(p *corev1.Pod) (bool, error) {
		if p.DeletionTimestamp == nil && slices.ContainsFunc(p.Status.Conditions, isReadyCondition) {
			healthy++
			if _, evicted := b.Status.DisruptedPods[p.Name]; evicted || p.UID != apart.UID && r.mayRestart(p) {
				leave++
			}
		}
		return healthy-leave <= b.Status.DesiredHealthy, nil // no other pod makes it less
	})
	return healthy, leave, err
}

func isReadyCondition(c corev1.PodCondition) bool {
	return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
}

// mayRestart is mayRestart of a pod that was just read: if it was told something else than is known, that was just now.
func (r *Restart) mayRestart(p *corev1.Pod) bool {
	now := p.Annotations[record.RestartAnnotation]
	known := r.Pod(p.Name)
	if known == nil || known.UID != p.UID || known.InPlace == nil || known.InPlace.Told[record.RestartAnnotation] != now {
		return now != ""
	}
	return mayRestart(known, r.Now)
}

// mayRestart reports whether a pod was told to restart in place, has not, and may yet: of a restart that was given up, the annotations stay.
func mayRestart(p *dependency.Pod, now time.Time) bool {
	told, found := toldLast(p)
	return found && now.Sub(told.Again).Abs() < deadline && (!restarted(p, &told) || unsure(p, &told, now))
}
