// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/configdep/configdep/pkg/policy"
)

// sharing sets up Deployments web and api with three ready pods each, which share a PodDisruptionBudget that allows some disruptions. It does
// not change while pods restart, as if its controller was slow. The content of both has just changed.
func sharing(c *cluster, allowed int32) {
	c.t.Helper()
	withPodsInPlace(c)
	d := deployment("api", "db")
	web := live(c, deployment("web", "db"))
	d.UID = "uid-api"
	d.Annotations[policy.StrategyAnnotation] = "in-place"
	d.Spec.Replicas, d.Spec.Template, d.Status = ptr.To[int32](3), web.Spec.Template, web.Status
	d.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	d.Spec.Template.Labels = map[string]string{"app": "web"}
	for i := range 3 {
		p := podInPlace(fmt.Sprint("api-", i))
		p.OwnerReferences[0].Name, p.OwnerReferences[0].UID = "api-a", "uid-api-a"
		c.set(p)
	}
	c.set(d)
	c.setBudget(&policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "both", UID: "uid-both", Generation: 1},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
		Status:     policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 1, DisruptionsAllowed: allowed, DesiredHealthy: 6 - allowed, CurrentHealthy: 6},
	})
	c.advance(time.Minute)
	c.took()
	c.told()
	c.set(secret("db", "2"))
	c.advance(time.Second)
}

// tells returns the pods that have been told since the last call.
func (c *cluster) tells() []string { return tellsOf(c.took()) }

func tellsOf(requests []string) (pods []string) {
	for _, r := range requests {
		if _, name, is := strings.Cut(r, " tell "); is {
			pods = append(pods, name)
		}
	}
	slices.Sort(pods)
	return pods
}

// Two workloads of one PodDisruptionBudget do not both use what it allows.
func TestInPlace_SharesABudget(t *testing.T) {
	inCluster(t, func(c *cluster) {
		sharing(c, 1)
		first := c.tells()
		if len(first) != 1 {
			t.Fatalf("told %v, want one pod", first)
		}
		c.advance(2 * time.Minute)
		if again := c.tells(); len(again) != 0 {
			t.Errorf("told %v while %v restarts", again, first)
		}
		if events := fmt.Sprint(c.told()); !strings.Contains(events, "PodDisruptionBudget both does not allow that pod ") ||
			!strings.Contains(events, "(it needs 5 healthy pods and has 6, of which 1 are being evicted or restarted).") {
			t.Errorf("events = %v", events)
		}
		c.resign()
		newLeader(c) // remembers nothing
		c.advance(30 * time.Second)
		if again := c.tells(); len(again) != 0 {
			t.Errorf("the next leader told %v while %v restarts", again, first)
		}
		for range 6 { // one after the other
			c.restart(first[0], true)
			c.advance(10 * time.Second)
			requests := c.took()
			if first = tellsOf(requests); len(first) != 1 {
				t.Log(requests)
				break
			}
		}
		for _, name := range []string{"web", "api"} {
			if got := live(c, deployment(name, "db")).Annotations[policy.RecreatingAnnotation]; got != "" {
				t.Errorf("Deployment %s: %s", name, got)
			}
		}
	})
}

// If it allows two disruptions, both go on.
func TestInPlace_UsesWhatABudgetAllows(t *testing.T) {
	inCluster(t, func(c *cluster) {
		sharing(c, 2)
		c.advance(2 * time.Second)
		if got := c.tells(); len(got) != 2 {
			t.Errorf("told %v, want a pod of each", got)
		}
	})
}

// Content changes again, when a pod has been told and has not acted on it. That pod does not wait for itself, and no other one is told.
func TestInPlace_BeginsAgainWithThePodThatWasTold(t *testing.T) {
	inCluster(t, func(c *cluster) {
		aboutToRestartInPlace(c)
		c.setBudget(&policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "uid-budget"},
			Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
			Status:     policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: 1, DesiredHealthy: 2, CurrentHealthy: 3},
		})
		edit(c, pod("web-1", ""), func(p *corev1.Pod) { unready(p) })
		edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Status.AvailableReplicas = 2 })
		c.advance(time.Second)
		c.expect("the one that is not ready", "1m1.5s in place web", "1m1.5s tell web-1")
		c.ready("web-1")
		edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Status.AvailableReplicas = 3 })
		c.set(secret("db", "3"))
		c.advance(time.Minute)
		c.expect("it begins again", "1m11.5s in place web", "1m11.5s tell web-1")
	})
}

// Pods that are being evicted are leaving, although they are ready.
func TestInPlace_CountsEvictions(t *testing.T) {
	inCluster(t, func(c *cluster) {
		aboutToRestartInPlace(c)
		c.setBudget(&policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "uid-budget"},
			Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
			Status: policyv1.PodDisruptionBudgetStatus{
				DisruptionsAllowed: 1, DesiredHealthy: 2, CurrentHealthy: 3, DisruptedPods: map[string]metav1.Time{"web-2": metav1.Now()},
			},
		})
		c.advance(time.Minute)
		if got := c.tells(); len(got) != 0 {
			t.Errorf("told %v", got)
		}
	})
}

// A pod that was told of a restart which was given up is not waited for without end.
func TestInPlace_WaitsForNoPodThatWasGivenUp(t *testing.T) {
	inCluster(t, func(c *cluster) {
		sharing(c, 1)
		first := c.tells()
		if len(first) != 1 {
			t.Fatalf("told %v", first)
		}
		name, other := "web", "api"
		if strings.HasPrefix(first[0], "api") {
			name, other = other, name
		}
		edit(c, deployment(name, "db"), func(d *appsv1.Deployment) { d.Annotations[policy.ReloadAnnotation] = "off" })
		c.advance(9 * time.Minute)
		if got := c.tells(); len(got) != 0 {
			t.Errorf("told %v", got)
		}
		edit(c, pod(first[0], ""), func(p *corev1.Pod) { p.Labels["note"] = "x" })
		c.advance(2 * time.Minute)
		if got := c.tells(); len(got) != 1 || !strings.HasPrefix(got[0], other) {
			t.Errorf("told %v, want a pod of %s", got, other)
		}
	})
}
