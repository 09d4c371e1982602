// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/configdep/configdep/pkg/policy"
)

// aboutToRecreate sets up a Deployment with three ready pods, whose strategy is recreate and whose content has just changed. The content settles
// in a second.
func aboutToRecreate(c *cluster) {
	c.t.Helper()
	adopted(c)
	c.ownPods()
	for i := range 3 {
		c.set(aged(pod(fmt.Sprint("web-", i), "uid-web-a")))
	}
	edit(c, deployment("web", "db"), func(d *appsv1.Deployment) {
		d.Annotations[policy.StrategyAnnotation] = "recreate"
		d.Spec.Replicas = ptr.To[int32](3)
		d.Status = appsv1.DeploymentStatus{Replicas: 3, UpdatedReplicas: 3, AvailableReplicas: 3}
	})
	c.advance(500 * time.Millisecond)
	c.set(secret("db", "2"))
}

// recreating is aboutToRecreate, followed by the eviction of the first pod.
func recreating(c *cluster) {
	c.t.Helper()
	aboutToRecreate(c)
	c.advance(time.Second)
	c.expect("it begins", "1m1.5s recreate web", "1m1.5s evict web-0")
	c.expectEvents("it begins", restarted)
}

// refusingEvictions makes evictions fail with an error.
func (c *cluster) refusingEvictions(err error) {
	c.refusing(func(a clienttesting.Action) error {
		if a.GetSubresource() == "eviction" {
			return err
		}
		return nil
	})
}

// TestRecreate_EvictsOnePodAfterTheOther, each after the previous one has been replaced, and does not change the template.
func TestRecreate_EvictsOnePodAfterTheOther(t *testing.T) {
	inCluster(t, func(c *cluster) {
		recreating(c)
		before := live(c, deployment("web", "db")).Spec.Template
		c.advance(50 * time.Second)
		c.expect("it has not gone yet")
		c.replace(false)
		c.advance(50 * time.Second)
		c.expect("its heir is not ready")
		c.ready("new-web-0")
		c.advance(5 * time.Second)
		c.expect("the second", "2m41.5s evict web-1")
		c.replace(true)
		c.advance(5 * time.Second)
		c.expect("the third", "2m46.5s evict web-2", "2m46.5s recreated web")
		c.replace(true)
		c.advance(time.Hour)
		c.expect("after that", "2m51.5s baseline web")
		if diff := cmp.Diff(before, live(c, deployment("web", "db")).Spec.Template); diff != "" {
			t.Errorf("the template has changed (-before +after):\n%s", diff)
		}
		c.expectEvents("one restart is one event, besides what it waits for", waitsToEvict+"2 of 3 pods are ready.")
	})
}

// waitsToEvict begins an event about what an eviction waits for.
const waitsToEvict = "Normal ConfigRestartWaiting Deployment/shop/web: The next pod will be evicted later: "

// TestRecreate_WaitsForDisruptionBudgets, for which the API server responds with 429, and reports long waits.
func TestRecreate_WaitsForDisruptionBudgets(t *testing.T) {
	inCluster(t, func(c *cluster) {
		aboutToRecreate(c)
		refused := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
		healthy := func(n int) {
			refused.ErrStatus.Details.Causes = []metav1.StatusCause{{
				Type: policyv1.DisruptionBudgetCause, Message: fmt.Sprintf("The disruption budget web needs 3 healthy pods and has %d currently", n),
			}}
		}
		healthy(2)
		c.refusingEvictions(refused)
		c.advance(12 * time.Second)
		healthy(3) // does not begin another wait
		c.expect("it asks now and then", "1m1.5s recreate web",
			"1m1.5s evict web-0: TooManyRequests", "1m6.5s evict web-0: TooManyRequests", "1m11.5s evict web-0: TooManyRequests")
		c.expectEvents("which is no failure", restarted)
		c.advance(48 * time.Second)
		c.expectEvents("a moment before a minute has passed")
		c.advance(time.Hour)
		c.expectEvents("it is told once",
			waitsToEvict+"the API server refuses to evict pod web-0 for now (The disruption budget web needs 3 healthy pods and has 3 currently).")
		c.refusing(nil)
		c.took()
		c.advance(time.Minute)
		c.expectDone("within a minute", "evict web-0")
		if log := c.log.String(); strings.Contains(log, "will retry") {
			t.Errorf("log = %s, want no error", log)
		}
	})
}

// TestRecreate_EvictsReadyPodsOnlyWhileAllAre: whatever makes pods unavailable, and whether or not the status already shows it.
func TestRecreate_EvictsReadyPodsOnlyWhileAllAre(t *testing.T) {
	for name, tc := range map[string]struct {
		on    func(*cluster)
		waits string
		off   func(*cluster)
	}{
		"a rollout of the owner": {func(c *cluster) { c.updated(1) }, "1 of 3 pods is up to date.", func(c *cluster) { c.updated(3) }},
		"a new pod that is not ready": {
			func(c *cluster) { c.remove(pod("web-2", "")); c.set(unready(pod("fresh", "uid-web-a"))) }, "2 of 3 pods are ready.",
			func(c *cluster) { c.ready("fresh") },
		},
		"a pod that has not been created yet": {
			func(c *cluster) { c.remove(pod("web-2", "")) }, "2 of 3 pods are ready.",
			func(c *cluster) { c.set(pod("fresh", "uid-web-a")) },
		},
		"a pod that is not available yet": {
			func(c *cluster) {
				c.advance(time.Hour)
				c.told()
				edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Spec.MinReadySeconds = 90 })
			}, "2 of 3 pods are available.",
			func(c *cluster) { c.advance(25 * time.Second) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				recreating(c)
				tc.on(c)
				c.replace(true)
				c.advance(65 * time.Second)
				c.expect("it waits")
				c.expectEvents("it waits", waitsToEvict+tc.waits)
				tc.off(c)
				c.advance(5 * time.Second)
				if got := c.took(); len(got) == 0 || !strings.HasSuffix(got[0], "evict web-1") {
					t.Errorf("then: %v", got)
				}
			})
		})
	}
}

// TestRecreate_RepairsPodsThatCannotBecomeReady: their content was wrong, and they would never become ready.
func TestRecreate_RepairsPodsThatCannotBecomeReady(t *testing.T) {
	inCluster(t, func(c *cluster) {
		aboutToRecreate(c)
		for _, name := range []string{"web-1", "web-2"} {
			edit(c, pod(name, ""), func(p *corev1.Pod) { unready(p) })
		}
		c.unavailable(2)
		c.advance(time.Second)
		c.expectDone("the first of them", "recreate web", "evict web-1")
		c.replace(true)
		c.advance(5 * time.Second)
		c.expectDone("the other", "evict web-2")
		c.replace(true)
		c.advance(5 * time.Second)
		c.expectDone("the one that is ready waits for the status")
		c.unavailable(0)
		c.advance(time.Second)
		c.expectDone("then", "evict web-0", "recreated web")
	})
}

// TestRecreate_TellsOfEachWaitByItself: two short waits for the same thing are not one long wait.
func TestRecreate_TellsOfEachWaitByItself(t *testing.T) {
	inCluster(t, func(c *cluster) {
		recreating(c)
		c.advance(40 * time.Second)
		c.replace(true)
		c.advance(45 * time.Second)
		c.expect("the second", "1m41.5s evict web-1")
		c.expectEvents("it has waited for 40 seconds twice")
		c.advance(30 * time.Second)
		c.expectEvents("and once for a minute", waitsToEvict+"2 of 3 pods are ready.")
	})
}

// TestRecreate_WithAnotherChangeOnTheWay: pods that were created in between have only the content of the first change.
func TestRecreate_WithAnotherChangeOnTheWay(t *testing.T) {
	inCluster(t, func(c *cluster) {
		recreating(c)
		c.set(secret("db", "3"))
		c.replace(true)
		c.advance(5 * time.Second)
		c.expect("it has to wait for the interval")
		c.advance(5 * time.Second)
		c.expect("it begins again", "1m11.5s recreate web", "1m11.5s evict new-web-0")
		for range 3 {
			c.replace(true)
			c.advance(5 * time.Second)
		}
		c.expect("all of them", "1m11.5s evict web-1", "1m16.5s evict web-2", "1m16.5s recreated web", "1m21.5s baseline web")
	})
}

// skewed is a clock that differs from that of the API server.
type skewed struct {
	clock.RealClock
	by time.Duration
}

func (s skewed) Now() time.Time                  { return s.RealClock.Now().Add(s.by) }
func (s skewed) Since(t time.Time) time.Duration { return s.Now().Sub(t) }

// TestRecreate_DoesNotDependOnClocks: each old pod is evicted exactly once, whatever the times in pods, and the clock of the process that
// continues.
func TestRecreate_DoesNotDependOnClocks(t *testing.T) {
	for name, clocks := range map[string][2]time.Duration{
		"behind":                            {-5 * time.Second, -5 * time.Second},
		"ahead":                             {90 * time.Second, 90 * time.Second},
		"the next leader's clock is behind": {time.Hour, -time.Hour},
		"the next leader's clock is ahead":  {-time.Hour, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				c.clock = skewed{by: clocks[0]}
				c.newProcess()
				recreating(c)
				c.clock = skewed{by: clocks[1]}
				c.nextLeader()
				evicted := []string{"web-0"}
				for range 30 {
					c.replace(true)
					c.advance(5 * time.Second)
					evicted = append(evicted, c.pods("evict")...)
				}
				if diff := cmp.Diff([]string{"web-0", "web-1", "web-2"}, evicted); diff != "" {
					t.Errorf("evictions (-want +got):\n%s", diff)
				}
				c.expectEnd("at the end")
			})
		})
	}
}

// TestRecreate_GetsPastADeadNode: the ReplicaSet has replaced the pod, which remains until the node is removed.
func TestRecreate_GetsPastADeadNode(t *testing.T) {
	inCluster(t, func(c *cluster) {
		recreating(c)
		c.set(pod("heir", "uid-web-a"))
		c.advance(5 * time.Second)
		c.expectDone("the heir is ready", "evict web-1")
		c.remove(pod("web-1", ""))
		c.set(pod("new-web-1", "uid-web-a"))
		c.advance(24 * time.Hour)
		c.expectDone("the others", "evict web-2", "recreated web")
	})
}
