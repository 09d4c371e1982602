// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/configdep/configdep/pkg/ingest/ingesttest"
	"github.com/configdep/configdep/pkg/policy"
)

// withManyPods is withPodsInPlace with more pods, of which some may be unavailable.
func withManyPods(c *cluster, pods int32, maxUnavailable intstr.IntOrString) {
	c.t.Helper()
	withPodsInPlace(c)
	for i := 3; i < int(pods); i++ {
		c.set(podInPlace(fmt.Sprint("web-", i)))
	}
	edit(c, deployment("web", "db"), func(d *appsv1.Deployment) {
		d.Spec.Replicas = new(pods)
		d.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxUnavailable: &maxUnavailable}
		d.Status = appsv1.DeploymentStatus{Replicas: pods, UpdatedReplicas: pods, AvailableReplicas: pods}
	})
}

// unavailable sets how many pods of the Deployment are not available.
func (c *cluster) unavailable(n int32) {
	c.t.Helper()
	edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Status.AvailableReplicas = d.Status.Replicas - n })
}

// readySince makes a pod ready since a time by the clock of its node.
func (c *cluster) readySince(name string, at time.Time) {
	c.t.Helper()
	edit(c, pod(name, ""), func(p *corev1.Pod) {
		p.Status.Conditions[0].Status, p.Status.Conditions[0].LastTransitionTime = corev1.ConditionTrue, metav1.NewTime(at.Truncate(time.Second))
	})
}

// No more pods are unavailable than maxUnavailable, and a pod that has just become ready is not available yet.
func TestInPlace_WaitsUntilPodsAreAvailable(t *testing.T) {
	const minReady = 10 * time.Minute
	inCluster(t, func(c *cluster) {
		withManyPods(c, 6, intstr.FromInt32(2))
		edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Spec.MinReadySeconds = int32(minReady.Seconds()) })
		c.advance(time.Minute)
		c.took()
		c.set(secret("db", "2"))
		since := map[string]time.Time{}
		unavailable := func() (n int32) {
			for _, at := range since {
				if time.Since(at) < minReady {
					n++
				}
			}
			return n
		}
		for range 400 {
			c.advance(5 * time.Second)
			for _, name := range c.tells() {
				c.restart(name, true)
				since[name] = time.Now()
			}
			if n := unavailable(); n > 2 {
				t.Fatalf("%d pods are not available: %v", n, since)
			}
			c.unavailable(unavailable())
		}
		if len(since) != 6 {
			t.Errorf("told %v, want all within the time of three", since)
		}
		c.expectEnd("at the end")
	})
}

// The clock of a node that is ahead delays, but not for ever.
func TestInPlace_WaitsForNoClockOfANode(t *testing.T) {
	for name, tc := range map[string]struct {
		ahead, within time.Duration
	}{
		"a minute": {time.Minute, 80 * time.Second},
		"a year":   {365 * 24 * time.Hour, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				withManyPods(c, 4, intstr.FromInt32(2))
				edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Spec.MinReadySeconds = 10 })
				c.advance(time.Minute)
				c.took()
				for i := range 2 {
					c.readySince(fmt.Sprint("web-", i), time.Now().Add(tc.ahead))
				}
				c.unavailable(2)
				c.set(secret("db", "2"))
				c.advance(time.Second)
				c.advance(tc.within)
				if got := fmt.Sprint(c.tells()); got != "[web-0]" {
					t.Errorf("told %v", got)
				}
			})
		})
	}
}

// The status of a StatefulSet counts ready pods, and the next one is not evicted before the last one is available.
func TestRecreate_WaitsUntilPodsAreAvailable(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.ownPods()
		c.synced()
		c.set(secret("db", "1"))
		s := statefulSet("web", "db")
		s.Annotations[policy.StrategyAnnotation] = "recreate"
		s.Spec.Replicas, s.Spec.MinReadySeconds = ptr.To[int32](2), 60
		s.Status = appsv1.StatefulSetStatus{Replicas: 2, UpdatedReplicas: 2, ReadyReplicas: 2}
		c.set(s)
		for i := range 2 {
			c.set(pod(fmt.Sprint("web-", i), "uid-web"))
		}
		c.lead()
		c.advance(time.Minute)
		c.took()
		c.readySince("web-1", time.Now())
		c.set(secret("db", "2"))
		c.advance(50 * time.Second)
		c.expect("one is not available", "1m1s recreate web")
		c.advance(20 * time.Second)
		c.expect("it is", "2m0s evict web-0")
	})
}

// That the status counts a pod as not available keeps no other from being restarted if two may be unavailable, for all kinds.
func TestInPlace_UsesMaxUnavailableOfAllKinds(t *testing.T) {
	two := new(intstr.FromInt32(2))
	for name, tc := range map[string]struct {
		change func(*appsv1.StatefulSet, *appsv1.DaemonSet)
		goes   bool
	}{
		"all pods are up to date": {func(*appsv1.StatefulSet, *appsv1.DaemonSet) {}, true},
		"the owner rolls out": {func(s *appsv1.StatefulSet, d *appsv1.DaemonSet) {
			s.Status.UpdatedReplicas, s.Status.UpdateRevision = 3, "s"
			d.Status.UpdatedNumberScheduled, d.Annotations["deprecated.daemonset.template.generation"] = 3, "2"
		}, false},
		"the controller has not seen the latest template": {func(s *appsv1.StatefulSet, d *appsv1.DaemonSet) {
			s.Generation, d.Generation = 2, 2
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s, d := statefulSet("web", "db"), daemonSet("web", "db")
			s.Spec.Replicas = ptr.To[int32](4)
			s.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{
				Type: appsv1.RollingUpdateStatefulSetStrategyType, RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{MaxUnavailable: two},
			}
			s.Status = appsv1.StatefulSetStatus{Replicas: 4, UpdatedReplicas: 4, ReadyReplicas: 3}
			d.Spec.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{
				Type: appsv1.RollingUpdateDaemonSetStrategyType, RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: two},
			}
			d.Status = appsv1.DaemonSetStatus{DesiredNumberScheduled: 4, CurrentNumberScheduled: 4, UpdatedNumberScheduled: 4, NumberAvailable: 3}
			withRestarter(&s.Spec.Template.Spec)
			withRestarter(&d.Spec.Template.Spec)
			s.Status.UpdateRevision, d.Annotations["deprecated.daemonset.template.generation"] = "r", "1"
			tc.change(s, d)
			for _, w := range []ingesttest.Object{s, d} {
				inCluster(t, func(c *cluster) {
					c.ownPods()
					c.synced()
					c.set(secret("db", "1"))
					w.GetAnnotations()[policy.StrategyAnnotation] = "in-place"
					c.set(w)
					for i := range 4 {
						p := podInPlace(fmt.Sprint("web-", i))
						p.Labels["controller-revision-hash"], p.Labels["pod-template-generation"] = "r", "1"
						c.set(of(w, p))
					}
					c.lead()
					c.advance(time.Minute)
					c.set(secret("db", "2"))
					c.advance(time.Minute)
					if got := len(c.tells()) > 0; got != tc.goes {
						t.Errorf("%T: told = %v, want %v", w, got, tc.goes)
					}
				})
			}
		})
	}
}
