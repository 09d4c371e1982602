// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
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

// TestInPlace_AsABudgetAllows: a ready pod is restarted only if its PodDisruptionBudget allows it.
func TestInPlace_AsABudgetAllows(t *testing.T) {
	allows := func(c *cluster) { c.setBudget("web", 1, 3) }
	for name, o := range map[string]obstacle{
		"it allows it": {allows, "", nil},
		"it does not allow it": {
			func(c *cluster) { c.setBudget("web", 0, 3) },
			"PodDisruptionBudget web does not allow that pod web-0 becomes unavailable (it needs 3 healthy pods and has 3).", allows,
		},
		"it has changed": {
			func(c *cluster) { c.setBudget("web", 1, 3, func(b *policyv1.PodDisruptionBudget) { b.Generation = 2 }) },
			"PodDisruptionBudget web has changed, and its controller has not observed that yet.", allows,
		},
		"it is one of other pods": {
			func(c *cluster) {
				c.setBudget("web", 0, 3, func(b *policyv1.PodDisruptionBudget) { b.Spec.Selector.MatchLabels["app"] = "other" })
			}, "", nil,
		},
		"there are several": {
			func(c *cluster) { c.setBudget("a", 1, 3); c.setBudget("b", 1, 3) },
			"pod web-0 has more than one PodDisruptionBudget (a and b, for example).",
			func(c *cluster) {
				if err := c.client.Tracker().Delete(policyv1.SchemeGroupVersion.WithResource("poddisruptionbudgets"), namespace, "b"); err != nil {
					c.t.Error(err)
				}
			},
		},
	} {
		t.Run(name, o.check)
	}
}

// sharing sets up Deployments web and api with three ready pods each, which share a PodDisruptionBudget that allows some disruptions. It does
// not change while pods restart, as if its controller was slow. The content of both has just changed.
func sharing(c *cluster, allowed int32) {
	c.t.Helper()
	withPodsInPlace(c, 3)
	d := deployment("api", "db")
	web := live(c, deployment("web", "db"))
	d.UID, d.CreationTimestamp = "uid-api", web.CreationTimestamp // no later than its pods
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
	c.setBudget("both", allowed, 6)
	c.advance(time.Minute)
	c.took()
	c.told()
	c.set(secret("db", "2"))
	c.advance(time.Second)
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
		c.expectTells("while it restarts")
		if events := fmt.Sprint(c.told()); !strings.Contains(events, "PodDisruptionBudget both does not allow that pod ") ||
			!strings.Contains(events, "(it needs 5 healthy pods and has 6, of which 1 are being evicted or restarted).") {
			t.Errorf("events = %v", events)
		}
		c.nextLeader() // remembers nothing
		c.advance(30 * time.Second)
		c.expectTells("with the next leader")
		n := 0
		for ; len(first) == 1; n++ { // one after the other
			c.restart(first[0], true)
			c.advance(10 * time.Second)
			first = c.tells()
		}
		if n != 6 || len(first) > 0 {
			t.Errorf("%d pods have been restarted, then told %v", n, first)
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
		c.setBudget("web", 1, 3)
		edit(c, pod("web-1", ""), func(p *corev1.Pod) { unready(p) })
		c.unavailable(1)
		c.advance(time.Second)
		c.expectTells("the one that is not ready", "web-1")
		c.ready("web-1")
		c.unavailable(0)
		c.set(secret("db", "3"))
		c.advance(time.Minute)
		c.expect("it begins again", "1m11.5s in place web", "1m11.5s tell web-1")
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
		c.expectTells("it may restart yet")
		c.advance(2 * time.Minute)
		if got := c.tells(); len(got) != 1 || !strings.HasPrefix(got[0], other) {
			t.Errorf("told %v, want a pod of %s", got, other)
		}
	})
}
