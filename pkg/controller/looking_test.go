// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/configdep/configdep/pkg/policy"
)

// interceptFirst makes react handle only the first request of a kind.
func (c *cluster) interceptFirst(verb, resource string, react clienttesting.ReactionFunc) {
	var came atomic.Bool
	c.intercept(verb, resource, func(a clienttesting.Action) (bool, runtime.Object, error) {
		if came.Swap(true) {
			return false, nil, nil
		}
		return react(a)
	})
}

// delayFirst delays the first request of a kind. During the delay it calls functions, each after a
// pause by the clock of the test.
func (c *cluster) delayFirst(verb, resource string, pause time.Duration, happen ...func()) {
	c.interceptFirst(verb, resource, func(clienttesting.Action) (bool, runtime.Object, error) {
		afterPauses(pause, happen)
		return false, nil, nil
	})
}

func afterPauses(pause time.Duration, happen []func()) {
	for _, f := range happen {
		<-time.After(pause)
		f()
	}
}

// countLooks counts the inspections of pods, and calls a function during each.
func (c *cluster) countLooks(happens func()) *int {
	looks := new(int)
	c.intercept("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		*looks++
		happens()
		return false, nil, nil
	})
	return looks
}

// thereAndBack changes content, starts a container with it, and changes the content back.
func (c *cluster) thereAndBack() []func() {
	return []func(){
		func() { c.set(secret("db", "9")) },
		func() { c.started("web-1", "app") },
		func() { c.set(secret("db", "1")) },
	}
}

// TestReconcile_ContentThatChangesWhileItsPodsAreLookedAt: the result of an inspection does not apply to a
// later excursion.
func TestReconcile_ContentThatChangesWhileItsPodsAreLookedAt(t *testing.T) {
	inCluster(t, func(c *cluster) {
		withPod(c)
		c.took()
		c.interceptFirst("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			// The answer is of now, but arrives half an hour later.
			pods := corev1.SchemeGroupVersion.WithResource("pods")
			list, err := c.client.Tracker().List(pods, corev1.SchemeGroupVersion.WithKind("Pod"), namespace)
			afterPauses(10*time.Minute, c.thereAndBack())
			return true, list, err
		})
		excursions["by a missing source"](c, func() {})()
		c.advance(3 * time.Hour)
		if got := c.kinds(); got != "mixed rollout" {
			t.Errorf("got %q: %+v", got, c.decision())
		}
	})
}

// TestReconcile_ContentThatChangesWheneverPodsAreLookedAt, and changes back: the pods are not inspected all the time.
func TestReconcile_ContentThatChangesWheneverPodsAreLookedAt(t *testing.T) {
	inCluster(t, func(c *cluster) {
		withPod(c)
		c.took()
		looks := c.countLooks(func() {
			c.set(secret("db", "9"))
			c.set(secret("db", "1"))
		})
		excursions["by a missing source"](c, func() {})()
		c.advance(time.Minute)
		if *looks < 10 || *looks > 14 {
			t.Errorf("pods were inspected %d times in a minute", *looks)
		}
		c.expect("nothing is known for certain")
	})
}

// TestReconcile_KubeletThatHasYetToReport: until it reports, the pods are inspected at growing intervals, and then the time is known.
func TestReconcile_KubeletThatHasYetToReport(t *testing.T) {
	for name, want := range map[string]string{"in between": "mixed rollout", "hours before": "verified"} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				withPod(c)
				c.took()
				looks := c.countLooks(func() {})
				p := pod("web-1", c.currentSet())
				start := time.Now().Add(-3 * time.Hour)
				creates := func() {
					if name == "in between" {
						start = time.Now()
					}
					p.Spec.NodeName, p.CreationTimestamp = "a", metav1.Now()
					p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", State: corev1.ContainerState{
						Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"},
					}}}
					c.set(p)
				}
				excursions["by a missing source"](c, creates)()
				c.advance(20 * time.Minute)
				c.expectState("the kubelet has said nothing", policy.Pending, policy.ReasonVerifying)
				c.expect("the kubelet has said nothing")
				if *looks < 8 || *looks > 12 { // after 5 s, doubling up to 5 minutes
					t.Errorf("the pods were inspected %d times in 20 minutes, want 8 to 12", *looks)
				}
				p.Status.ContainerStatuses[0].State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(start)}}
				c.set(p)
				c.advance(10 * time.Minute)
				if got := c.kinds(); got != want {
					t.Errorf("got %q, want %q: %+v", got, want, c.decision())
				}
			})
		})
	}
}

// TestReconcile_ContentThatChangesWhileARecordIsWritten, and changes back: the record was decided on before that.
func TestReconcile_ContentThatChangesWhileARecordIsWritten(t *testing.T) {
	inCluster(t, func(c *cluster) {
		withPod(c)
		c.took()
		c.delayFirst("patch", "*", 3*time.Second, c.thereAndBack()...)
		excursions["by a missing source"](c, func() {})()
		c.advance(3 * time.Hour)
		if got := c.kinds(); got != "verified mixed rollout" {
			t.Errorf("got %q: %+v", got, c.decision())
		}
	})
}

// TestReconcile_ContentThatChangesWhileARestartIsWritten, and changes back: the pods that the restart creates have
// read the content at that time.
func TestReconcile_ContentThatChangesWhileARestartIsWritten(t *testing.T) {
	inCluster(t, func(c *cluster) {
		withPod(c)
		c.took()
		c.delayFirst("patch", "*", 3*time.Second,
			func() { c.set(secret("db", "9")) },
			func() { c.set(secret("db", "2")) })
		c.set(secret("db", "2"))
		c.advance(3 * time.Hour)
		if got := c.kinds(); got != "rollout" {
			t.Errorf("got %q: %+v", got, c.decision())
		}
		c.expectState("at last", policy.InSync, "ContentApplied")
	})
}

// TestReconcile_AnswersAreLost: the record is the same as an earlier one, whose basis does not apply to it.
func TestReconcile_AnswersAreLost(t *testing.T) {
	inCluster(t, func(c *cluster) {
		withPod(c)
		c.took()
		c.intercept("patch", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
			if _, _, err := c.patch(a); err != nil {
				return true, nil, err
			}
			return true, nil, errors.New("connection reset by peer")
		})
		edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Annotations[policy.StrategyAnnotation] = "recreate" })
		excursions["by a missing source"](c, func() { c.started("web-1", "app") })()
		c.advance(time.Minute)
		want := "mixed recreate" + strings.Repeat(" evict", 2) + " recreated"
		if got := c.kinds(); got != want {
			t.Errorf("got %q, want %q: %+v", got, want, c.decision())
		}
	})
}
