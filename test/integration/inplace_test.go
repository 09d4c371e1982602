// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/record"
	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/install"
)

// Pods are restarted in place when content changes, and on request. They stay the same, and the template does, too.
func TestInPlace(t *testing.T) {
	t.Parallel()
	s := newInPlaceShop(newShop(t), nil)
	pods := s.uids()
	s.view("deployment.web", restartedInPlace, at(s.write(config, "key", "2")))
	s.check(pods, 1)

	answer, err := s.api().Reload(t.Context(), "deployment.web", &v1alpha1.Reload{}, metav1.CreateOptions{})
	if err != nil || !answer.Status.Triggered || answer.Status.Message != "The pods of Deployment web are being restarted in place, one by one." {
		t.Errorf("answer = %+v (%v)", answer, err)
	}
	s.view("deployment.web", restartedInPlace, restartedFor(record.TriggerRequest))
	s.check(pods, 2)
	if now := s.uids(); !maps.Equal(now, pods) || s.templates("web") != 1 {
		t.Errorf("pods = %v, with %d ReplicaSets, want %v with one", now, s.templates("web"), pods)
	}
	for _, reason := range []string{"ConfigRestartingInPlace", "ConfigRestartedInPlace"} {
		await.Until(t, "there are events "+reason, func(ctx context.Context) error {
			events, err := kube.CoreV1().Events(s.namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.kind=Pod,reason=" + reason})
			if err == nil && len(events.Items) < replicas {
				err = fmt.Errorf("%d events, want one for each pod", len(events.Items))
			}
			return err
		})
	}
	await.Until(t, "no container is stale", func(ctx context.Context) error {
		states, err := s.api().GetPods(ctx, "deployment.web", metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, p := range states.Pods {
			for _, c := range p.Containers {
				if c.State == v1alpha1.ContentStale || c.Name == "app" && c.RestartCount != 2 {
					return fmt.Errorf("pod %s: container %+v", p.Name, c)
				}
			}
		}
		return nil
	})
}

// What cannot be restarted in place is replaced, and the view says why.
func TestInPlace_RolledOutIfImpossible(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*appsv1.Deployment)
		why    string
	}{
		"no restarter":              {func(d *appsv1.Deployment) { d.Spec.Template.Spec.InitContainers[0].RestartPolicyRules = nil }, "its pod template has no restarter"},
		"no pod may be unavailable": {noneUnavailable, "its update strategy lets no pod be unavailable"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newInPlaceShop(newShop(t), tc.change)
			o := s.view("deployment.web", restartedInPlace, at(s.write(config, "key", "2")))
			if !strings.Contains(o.Status.Message, "Restarts are rollouts and not in place, because "+tc.why+".") {
				t.Errorf("message = %s", o.Status.Message)
			}
			if n := s.templates("web"); n != 2 {
				t.Errorf("there are %d ReplicaSets, want 2", n)
			}
			s.check(s.uids(), 0)
		})
	}
}

// A PodDisruptionBudget that does not allow it holds the restart up.
func TestInPlace_WaitsForADisruptionBudget(t *testing.T) {
	t.Parallel()
	s := newInPlaceShop(newShop(t), nil)
	pods := s.uids()
	budgets := kube.PolicyV1().PodDisruptionBudgets(s.namespace)
	all := intstr.FromInt32(replicas)
	if _, err := budgets.Create(t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: &all, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	written := s.write(config, "key", "2")
	await.Until(t, "the server has looked at the budget, and decided", func(context.Context) error {
		if n := budgetsListed(t, s.namespace); n < 2 {
			return fmt.Errorf("it has looked %d times", n)
		}
		return nil
	})
	s.check(pods, 0)
	s.view("deployment.web", is(v1alpha1.StateRollingOut, record.ReasonRestartingInPlace))
	if err := budgets.Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.view("deployment.web", restartedInPlace, at(written))
	s.check(pods, 1)
}

// Two workloads that share a PodDisruptionBudget restart one pod after the other, also while its status counts one that has just been told.
func TestInPlace_WorkloadsShareADisruptionBudget(t *testing.T) {
	t.Parallel()
	const each = 2
	s := newInPlaceShop(newShop(t), func(d *appsv1.Deployment) { d.Spec.Replicas = new(int32(each)) })
	s.create(inPlace("api", each))
	s.view("deployment.api", restartedInPlace)
	budgets := kube.PolicyV1().PodDisruptionBudgets(s.namespace)
	if _, err := budgets.Create(t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "both"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MaxUnavailable: new(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "the budget allows a disruption", func(ctx context.Context) error {
		b, err := budgets.Get(ctx, "both", metav1.GetOptions{})
		if err == nil && (b.Status.DisruptionsAllowed != 1 || b.Status.CurrentHealthy != 2*each) {
			err = fmt.Errorf("status = %+v", b.Status)
		}
		return err
	})
	pods := s.uids()
	written := s.write(config, "key", "2")
	s.view("deployment.web", restartedInPlace, at(written))
	s.view("deployment.api", restartedInPlace, at(written))
	s.check(pods, 1)
}

// The server dies at each step. The next one goes on, and no pod is restarted twice.
func TestInPlace_SurvivesTheServer(t *testing.T) {
	t.Parallel()
	own := newOwnShop(t)
	r := own.serve(install.ReplicaOptions{})
	s := newInPlaceShop(own, nil)
	pods := s.uids()
	s.kubelet.halt(true)
	written := s.write(config, "key", "2")
	for told := 1; told <= replicas; told++ {
		await.Until(t, fmt.Sprintf("%d pods have been told", told), func(ctx context.Context) error {
			list, err := kube.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=web"})
			n := 0
			for i := range list.Items {
				if list.Items[i].Annotations[record.RestartAnnotation] != "" {
					n++
				}
			}
			if n != told {
				return fmt.Errorf("%d pods have been told (%w)", n, err)
			}
			return nil
		})
		r.Kill()
		s.kubelet.halt(false)
		await.Until(t, "the pod has restarted", func(context.Context) error {
			s.kubelet.mu.Lock()
			defer s.kubelet.mu.Unlock()
			if n := len(s.kubelet.restarts); n != told {
				return fmt.Errorf("%d pods have restarted", n)
			}
			return nil
		})
		s.kubelet.halt(true)
		restart(t, r)
	}
	s.view("deployment.web", restartedInPlace, at(written))
	s.check(pods, 1)
	if now := s.uids(); !maps.Equal(now, pods) {
		t.Errorf("pods = %v, want %v", now, pods)
	}
}
