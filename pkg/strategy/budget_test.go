// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package strategy

import (
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/record"
	"github.com/configdep/configdep/pkg/workload"
	"github.com/configdep/configdep/pkg/workload/workloadtest"
)

// All budgets of the namespace are read, however many there are, and one without a selector selects nothing.
func TestBudgetOf_ReadsAllPages(t *testing.T) {
	client := fake.NewClientset()
	var limits []int64
	client.PrependReactor("list", "poddisruptionbudgets", func(a clienttesting.Action) (bool, runtime.Object, error) {
		options := a.(clienttesting.ListActionImpl).ListOptions
		limits = append(limits, options.Limit)
		b := policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "b" + options.Continue}}
		list := &policyv1.PodDisruptionBudgetList{}
		if options.Continue == "" {
			list.Continue = "2"
		} else {
			b.Spec.Selector = &metav1.LabelSelector{}
			b.Status = policyv1.PodDisruptionBudgetStatus{DesiredHealthy: 2, CurrentHealthy: 1}
		}
		list.Items = []policyv1.PodDisruptionBudget{b}
		return true, list, nil
	})
	p := &dependency.Pod{PodKey: dependency.PodKey{Name: "web-0", Namespace: "shop"}}
	of, err := budgetOf(t.Context(), workloadtest.Client(client), p)
	if err != nil {
		t.Fatal(err)
	}
	waits, why, err := of.protects(t.Context(), workloadtest.Client(client), &Restart{Now: time.Now()}, p)
	if err != nil || waits != "PodDisruptionBudget b2 does not allow that pod web-0 becomes unavailable" || why != "it needs 2 healthy pods and has 1" {
		t.Errorf("waits = %q, %q (%v)", waits, why, err)
	}
	if fmt.Sprint(limits) != "[16 16]" {
		t.Errorf("limits = %v, want two pages", limits)
	}
}

// All pods of a budget are counted, in pages, and those that are ready and stay have to be enough.
func TestBudget_CountsAllPages(t *testing.T) {
	client := fake.NewClientset()
	failed := error(nil)
	client.PrependReactor("list", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		options := a.(clienttesting.ListActionImpl).ListOptions
		if options.LabelSelector != "app=web" || options.Limit != workload.PageSize {
			t.Errorf("options = %+v", options)
		}
		ready := func(name string, edit func(*corev1.Pod)) corev1.Pod {
			p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{"app": "web"}}, Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}}
			if edit != nil {
				edit(&p)
			}
			return p
		}
		list := &corev1.PodList{Items: []corev1.Pod{
			ready("a", nil), ready("evicted", nil), ready("gone", func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.Now()) }),
		}}
		if options.Continue == "" {
			list.Continue = "2"
			return true, list, nil
		}
		list.Items = []corev1.Pod{ready("told", func(p *corev1.Pod) { // just now: the index does not know
			p.Annotations = map[string]string{record.RestartAnnotation: "0123456789abcdef"}
		}), ready("b", nil), ready("unready", func(p *corev1.Pod) { p.Status.Conditions = nil })}
		return true, list, failed
	})
	b := budget{selector: labels.SelectorFromSet(labels.Set{"app": "web"})}
	b.Name, b.Status.DisruptionsAllowed, b.Status.DisruptedPods = "web", 1, map[string]metav1.Time{"evicted": metav1.Now()}
	p := &dependency.Pod{PodKey: dependency.PodKey{Name: "a", Namespace: "shop"}, UID: "a"}
	r := &Restart{Now: time.Now(), Pod: func(string) *dependency.Pod { return nil }}
	for desired, want := range map[int32]string{1: "", 2: "it needs 2 healthy pods and has 4, of which 2 are being evicted or restarted"} {
		b.Status.DesiredHealthy = desired
		if waits, why, err := b.protects(t.Context(), workloadtest.Client(client), r, p); err != nil || why != want || (waits == "") != (want == "") {
			t.Errorf("with %d: waits = %q, %q (%v)", desired, waits, why, err)
		}
	}
	failed = errors.New("no")
	if _, _, err := b.protects(t.Context(), workloadtest.Client(client), r, p); !errors.Is(err, failed) {
		t.Errorf("error = %v", err)
	}
}
