// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/utils/clock"

	"github.com/configdep/configdep/pkg/ingest/ingesttest"
	"github.com/configdep/configdep/pkg/policy"
)

// skewed is a clock that differs from that of the API server.
type skewed struct {
	clock.RealClock
	by time.Duration
}

func (s skewed) Now() time.Time                  { return s.RealClock.Now().Add(s.by) }
func (s skewed) Since(t time.Time) time.Duration { return s.Now().Sub(t) }

// TestRecreate_DoesNotDependOnClocks: each old pod is evicted exactly once, whatever the times
// in pods, and the clock of the process that continues.
func TestRecreate_DoesNotDependOnClocks(t *testing.T) {
	for name, tc := range map[string]struct{ before, after time.Duration }{
		"behind":                            {-5 * time.Second, -5 * time.Second},
		"ahead":                             {90 * time.Second, 90 * time.Second},
		"far behind":                        {-time.Hour, -time.Hour},
		"far ahead":                         {time.Hour, time.Hour},
		"the next leader's clock is behind": {time.Hour, -time.Hour},
		"the next leader's clock is ahead":  {-time.Hour, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				c.clock = skewed{by: tc.before}
				c.newProcess()
				recreating(c)
				if tc.after != tc.before {
					c.resign()
					c.clock = skewed{by: tc.after}
					c.newProcess()
					c.synced()
					c.lead()
				}
				evicted := map[string]int{"web-0": 1}
				for range 30 {
					c.replace(true)
					c.advance(5 * time.Second)
					c.mu.Lock()
					for _, r := range c.requests {
						if r.verb == "evict" {
							evicted[r.name]++
						}
					}
					c.requests = nil
					c.mu.Unlock()
				}
				if diff := cmp.Diff(map[string]int{"web-0": 1, "web-1": 1, "web-2": 1}, evicted); diff != "" {
					t.Errorf("evictions (-want +got):\n%s", diff)
				}
				if d := live(c, deployment("web", "db")); d.Annotations[policy.RecreatingAnnotation] != "" {
					t.Errorf("annotations = %v, want the end of the eviction", d.Annotations)
				}
			})
		})
	}
}

// TestRecreate_GetsPastADeadNodeOfADeployment: the ReplicaSet has replaced the pod, which
// remains until the node is removed.
func TestRecreate_GetsPastADeadNodeOfADeployment(t *testing.T) {
	inCluster(t, func(c *cluster) {
		recreating(c)
		c.set(pod("heir", "uid-web-a"))
		c.advance(5 * time.Second)
		c.expect("the heir is ready", "1m1.5s evict web-1")
		c.remove(pod("web-1", ""))
		c.set(pod("new-web-1", "uid-web-a"))
		c.advance(5 * time.Second)
		c.expect("the next", "1m6.5s evict web-2", "1m6.5s recreated web")
		c.remove(pod("web-2", ""))
		c.set(pod("new-web-2", "uid-web-a"))
		c.advance(24 * time.Hour)
		c.expect("after that")
		if diff := cmp.Diff([]string{"heir", "new-web-1", "new-web-2", "web-0"}, c.podNames()); diff != "" {
			t.Errorf("evictions (-want +got):\n%s", diff)
		}
	})
}

// TestRecreate_GetsPastADeadNodeOfOtherKinds: the pod is not replaced. The others stay until the
// pod is certainly dead.
func TestRecreate_GetsPastADeadNodeOfOtherKinds(t *testing.T) {
	for name, tc := range map[string]struct {
		workload ingesttest.Object
		status   func(c *cluster, ready int32)
	}{
		"StatefulSet": {statefulSet("web", "db"), func(c *cluster, ready int32) {
			edit(c, statefulSet("web", "db"), func(s *appsv1.StatefulSet) {
				s.Spec.Replicas = new(int32(3))
				s.Status = appsv1.StatefulSetStatus{Replicas: 3, UpdatedReplicas: 3, ReadyReplicas: ready}
			})
		}},
		"DaemonSet": {daemonSet("web", "db"), func(c *cluster, ready int32) {
			edit(c, daemonSet("web", "db"), func(s *appsv1.DaemonSet) {
				s.Status = appsv1.DaemonSetStatus{DesiredNumberScheduled: 3, UpdatedNumberScheduled: 3, NumberAvailable: ready}
			})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				c.ownPods()
				c.synced()
				c.set(secret("db", "1"))
				tc.workload.GetAnnotations()[policy.StrategyAnnotation] = "recreate"
				c.set(tc.workload)
				tc.status(c, 3)
				for i := range 3 {
					c.set(of(tc.workload, pod(fmt.Sprint("web-", i), "uid-web")))
				}
				c.lead()
				c.advance(time.Minute)
				c.set(secret("db", "2"))
				c.advance(5 * time.Second)
				c.expect("it begins", "0s baseline web", "1m1s recreate web", "1m1s evict web-0")
				c.told()
				tc.status(c, 2)
				c.advance(115 * time.Second)
				c.expect("it may be ending yet")
				c.expectEvents("it may be ending yet",
					"Normal ConfigReloadWaiting "+name+"/shop/web: The next pod will be evicted later: 2 of 3 pods are ready.")
				c.advance(5 * time.Second)
				c.expect("it is dead", "3m1.000000001s evict web-1")
				c.advance(time.Minute)
				c.expect("another one is ending")
				c.remove(pod("web-1", ""))
				c.set(of(tc.workload, pod("new-web-1", "uid-web")))
				c.advance(5 * time.Second)
				c.expect("the last", "4m5s evict web-2", "4m5s recreated web")
				c.remove(pod("web-2", ""))
				c.set(of(tc.workload, pod("new-web-2", "uid-web")))
			})
		})
	}
}
