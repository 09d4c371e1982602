// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// allow sets how many disruptions the PodDisruptionBudget of the three pods allows.
func (c *cluster) allow(disruptions int32) {
	c.t.Helper()
	c.setBudget(&policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "uid-budget"},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
		Status:     policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: disruptions, DesiredHealthy: 3 - disruptions, CurrentHealthy: 3},
	})
}

// lists returns how often a resource has been listed since the last call of ClearActions.
func (c *cluster) lists(resource string) (n int) {
	for _, a := range c.client.Actions() {
		if a.Matches("list", resource) {
			n++
		}
	}
	return n
}

// annotateDeployment makes an event of the Deployment web.
func (c *cluster) annotateDeployment(value string) {
	c.t.Helper()
	edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Annotations["note"] = value })
}

// While a restart waits for a budget, changes of the workload do not let all of its pods be listed each time, and time alone lets that be done
// ever less often. When the budget allows it, the next change of the workload lets it go on within a second.
func TestContinue_WaitsForABudget(t *testing.T) {
	for name, tc := range map[string]struct {
		begin, allow func(*cluster)
		next         string
	}{
		"in place": {
			func(c *cluster) { aboutToRestartInPlace(c); c.allow(0) }, func(c *cluster) { c.allow(1) }, "tell web-0",
		},
		"evictions": {
			func(c *cluster) {
				aboutToRecreate(c)
				c.refusingEvictions(apierrors.NewTooManyRequests("the budget", 0))
			}, func(c *cluster) { c.refusing(nil) }, "evict web-0",
		},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				tc.begin(c)
				c.advance(10 * time.Second)
				c.took()
				c.client.ClearActions()
				for i := range 100 {
					c.annotateDeployment(fmt.Sprint(i))
					c.advance(10 * time.Millisecond)
				}
				if n := c.lists("poddisruptionbudgets") + len(c.took()); n < 1 || n > 3 {
					t.Errorf("within a second, the API server was asked %d times, want 1 to 3 times", n)
				}
				c.client.ClearActions()
				c.advance(time.Hour)
				if n := c.lists("poddisruptionbudgets") + len(c.took()); n < 100 || n > 150 { // every 5 seconds at first, and at last every minute
					t.Errorf("within an hour, the API server was asked %d times, want 100 to 150 times", n)
				}
				tc.allow(c)
				c.annotateDeployment("allowed")
				c.advance(time.Second)
				if got := c.took(); len(got) != 1 || !strings.HasSuffix(got[0], tc.next) {
					t.Errorf("within a second of a change of the workload: %v, want %s", got, tc.next)
				}
			})
		})
	}
}

// Without any change of the workload, a restart goes on within a minute, however long it has waited.
func TestContinue_LooksAtABudgetEveryMinute(t *testing.T) {
	inCluster(t, func(c *cluster) {
		aboutToRestartInPlace(c)
		c.allow(0)
		c.advance(24 * time.Hour)
		c.took()
		c.allow(1)
		c.advance(time.Minute)
		if got := c.tells(); len(got) != 1 {
			t.Errorf("told %v, want one pod", got)
		}
		c.restart("web-0", true)
		c.advance(5 * time.Second)
		if got := c.tells(); len(got) != 1 {
			t.Errorf("then: told %v, want the next pod at once", got)
		}
	})
}

// A pod that is ready again is shown by the status of the workload, and the restart goes on within a second.
func TestContinue_GoesOnWhenThePodsAreReady(t *testing.T) {
	inCluster(t, func(c *cluster) {
		aboutToRestartInPlace(c)
		available := func(n int32) {
			edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Status.AvailableReplicas = n })
		}
		c.remove(pod("web-2", ""))
		available(2)
		c.advance(time.Hour)
		c.took()
		c.set(podInPlace("new"))
		c.client.ClearActions()
		for i := range 100 {
			c.annotateDeployment(fmt.Sprint(i))
		}
		available(3)
		c.advance(time.Second)
		if got := c.tells(); len(got) != 1 {
			t.Errorf("told %v, want one pod", got)
		}
		if pods := c.lists("pods"); pods > 3 {
			t.Errorf("pods were listed %d times", pods)
		}
	})
}

// What a restart waits for is forgotten with the workload.
func TestContinue_ForgetsWhatItWaitedFor(t *testing.T) {
	inCluster(t, func(c *cluster) {
		aboutToRestartInPlace(c)
		c.allow(0)
		c.advance(time.Minute)
		c.remove(live(c, deployment("web", "db")))
		c.advance(time.Second)
		if len(c.controller.notes) != 0 {
			t.Errorf("notes = %v", c.controller.notes)
		}
	})
}
