// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/configdep/configdep/pkg/kind"
)

// maxUnavailable sets how many pods of the Deployment may be unavailable.
func (c *cluster) maxUnavailable(n int) {
	c.t.Helper()
	edit(c, deployment("web", "db"), func(d *appsv1.Deployment) {
		d.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxUnavailable: new(intstr.FromInt(n))}
	})
}

// obstacle is something for which a restart in place may have to wait before it tells a ready pod.
type obstacle struct {
	on    func(*cluster)
	waits string // empty: it does not wait
	off   func(*cluster)
}

func (o *obstacle) check(t *testing.T) {
	t.Helper()
	inCluster(t, func(c *cluster) {
		aboutToRestartInPlace(c)
		o.on(c)
		c.advance(time.Second)
		if o.waits == "" {
			c.expectDone("it begins", "in place web", "tell web-0")
			return
		}
		c.advance(2 * time.Minute)
		c.expectDone("it begins, and waits", "in place web")
		c.expectEvents("it waits", restarted, "Normal ConfigRestartWaiting Deployment/shop/web: The next pod will be restarted in place later: "+o.waits)
		o.off(c)
		c.advance(5 * time.Second)
		c.expectDone("then", "tell web-0")
	})
}

// TestInPlace_RestartsReadyPodsOnlyWhileEnoughAre, by the pods and by the status.
func TestInPlace_RestartsReadyPodsOnlyWhileEnoughAre(t *testing.T) {
	lost := func(c *cluster) { c.remove(pod("web-2", "")) }
	revision := func(c *cluster, number string, updated int32) {
		edit(c, deployment("web", "db"), func(d *appsv1.Deployment) {
			d.Annotations[kind.RevisionAnnotation], d.Status.UpdatedReplicas, d.Status.AvailableReplicas = number, updated, 2
		})
	}
	for name, o := range map[string]obstacle{
		"all are ready":          {func(*cluster) {}, "", nil},
		"a pod is missing":       {lost, "2 of 3 pods are ready.", func(c *cluster) { c.set(podInPlace("new")) }},
		"two may be unavailable": {func(c *cluster) { c.maxUnavailable(2); lost(c) }, "", nil},
		"one may be unavailable": {func(c *cluster) { c.maxUnavailable(1); lost(c) }, "2 of 3 pods are ready.", func(c *cluster) { c.maxUnavailable(2) }},
		"the owner rolls out":    {func(c *cluster) { c.updated(1) }, "1 of 3 pods is up to date.", func(c *cluster) { c.updated(3) }},
		"the owner rolls out, and two may be unavailable": {
			func(c *cluster) { c.maxUnavailable(2); revision(c, "2", 1) }, "1 of 3 pods is up to date.",
			func(c *cluster) { revision(c, "1", 3) },
		},
	} {
		t.Run(name, o.check)
	}
}

// No more pods are unavailable than maxUnavailable, and a pod that has just become ready is not available yet.
func TestInPlace_WaitsUntilPodsAreAvailable(t *testing.T) {
	const minReady = 10 * time.Minute
	inCluster(t, func(c *cluster) {
		withPodsInPlace(c, 6)
		c.maxUnavailable(2)
		edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Spec.MinReadySeconds = int32(minReady.Seconds()) })
		c.advance(time.Hour)
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
	for ahead, within := range map[time.Duration]time.Duration{time.Minute: 80 * time.Second, 365 * 24 * time.Hour: 5 * time.Second} {
		t.Run(ahead.String(), func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				withPodsInPlace(c, 4)
				c.maxUnavailable(2)
				edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Spec.MinReadySeconds = 10 })
				for _, name := range []string{"web-0", "web-1"} {
					edit(c, pod(name, ""), func(p *corev1.Pod) {
						p.Status.Conditions[0].LastTransitionTime = metav1.NewTime(time.Now().Add(ahead).Truncate(time.Second))
					})
				}
				c.unavailable(2)
				c.set(secret("db", "2"))
				c.advance(time.Second + within)
				c.expectTells("at last", "web-0")
			})
		})
	}
}
