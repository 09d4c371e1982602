// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package strategy

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/workload"
)

// Budgets are the PodDisruptionBudgets by which it is being decided whether a pod may be told to restart in place: of each, by one workload
// at a time. Its zero value has none. Between two decisions, nothing has to be remembered, because each one reads which pods have been told.
type Budgets struct {
	mu    sync.Mutex
	taken map[types.UID]bool // not more than there are workers
}

// take reports whether no other workload has taken a budget. It then must be released.
func (b *Budgets) take(uid types.UID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.taken[uid] {
		return false
	}
	if b.taken == nil {
		b.taken = map[types.UID]bool{}
	}
	b.taken[uid] = true
	return true
}

func (b *Budgets) release(uid types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.taken, uid)
}

// pageSize is how many objects are read at a time.
const pageSize = 500

// budget is the PodDisruptionBudget of a pod. The zero value has no name: there is none.
type budget struct {
	policyv1.PodDisruptionBudget

	selector labels.Selector
	other    string // the name of another one of the same pod; empty: there is none
}

// budgetOf returns the PodDisruptionBudget of a pod.
func budgetOf(ctx context.Context, client workload.Client, p *corev1.Pod) (b budget, err error) {
	options := metav1.ListOptions{Limit: pageSize}
	for {
		page, err := client.PolicyV1().PodDisruptionBudgets(p.Namespace).List(ctx, options)
		if err != nil {
			return budget{}, err
		}
		for i := range page.Items {
			selector, err := metav1.LabelSelectorAsSelector(page.Items[i].Spec.Selector)
			switch {
			case err != nil || !selector.Matches(labels.Set(p.Labels)):
			case b.selector == nil:
				b.PodDisruptionBudget, b.selector = page.Items[i], selector
			case b.other == "":
				b.other = page.Items[i].Name
			}
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return b, nil
		}
	}
}

// protects says what keeps a pod from becoming unavailable, by the rules by which the API server refuses evictions; empty: nothing does.
// Why says more. The status alone is not enough: it counts a pod that has just been told until that is no longer ready.
func (b *budget) protects(ctx context.Context, client workload.Client, p *corev1.Pod, now time.Time) (waits, why string, err error) {
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
	healthy, leave, err := b.count(ctx, client, p, now)
	if err != nil || healthy-leave > b.Status.DesiredHealthy {
		return "", "", err
	}
	return does, fmt.Sprintf("it needs %d healthy pods and has %d, of which %d are being evicted or restarted", b.Status.DesiredHealthy, healthy, leave), nil
}

// count counts the pods that are healthy now, and those of them, apart from one pod, that are about to become unavailable: they are being
// evicted, or have been told to restart in place. Each workload has told one at most, but several may share the budget. It stops once enough
// pods are left.
func (b *budget) count(ctx context.Context, client workload.Client, apart *corev1.Pod, now time.Time) (healthy, leave int32, err error) {
	options := metav1.ListOptions{LabelSelector: b.selector.String(), Limit: pageSize}
	for {
		page, err := client.CoreV1().Pods(b.Namespace).List(ctx, options)
		if err != nil {
			return 0, 0, err
		}
		for i := range page.Items {
			p := &page.Items[i]
			if p.DeletionTimestamp != nil || !isReady(p) {
				continue
			}
			healthy++
			if _, evicted := b.Status.DisruptedPods[p.Name]; evicted || p.UID != apart.UID && mayRestart(p, now) {
				leave++
			}
			if healthy-leave > b.Status.DesiredHealthy { // no other pod makes it less
				return healthy, leave, nil
			}
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return healthy, leave, nil
		}
	}
}

// mayRestart reports whether a pod was told to restart in place, has not, and may yet: of a restart that was given up, the annotations stay.
func mayRestart(p *corev1.Pod, now time.Time) bool {
	told, found := policy.ToldLast(p.Annotations)
	return found && now.Sub(told.Again).Abs() < deadline && (!restarted(p, &told) || unsure(p, &told, now))
}
