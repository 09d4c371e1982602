// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/configdep/configdep/pkg/policy"
)

// restartedAt is restart, with a time at which the containers started by the clock of the node, and how often they have restarted.
func (c *cluster) restartedAt(name string, at time.Time, times int32) {
	c.t.Helper()
	edit(c, pod(name, ""), func(p *corev1.Pod) {
		for _, s := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
			s[0].RestartCount, s[0].State = times, runningSince(at)
		}
	})
}

// toldBeforeTheStatus is a cluster in which the containers of web-0 have restarted, content has changed after that, and the pod has been told
// of a second restart, all before its kubelet has reported the first one.
func toldBeforeTheStatus(c *cluster) (restarted time.Time) {
	c.t.Helper()
	restartingInPlace(c)
	c.advance(20 * time.Second)
	restarted = time.Now()
	c.advance(time.Second)
	c.set(secret("db", "3"))
	c.advance(10 * time.Second)
	c.expect("it begins again", "1m22.5s in place web", "1m22.5s tell web-0")
	return restarted
}

// A restart that the kubelet reports late is not taken for the one of which the pod was told after it.
func TestInPlace_DoesNotMistakeAnEarlierRestart(t *testing.T) {
	inCluster(t, func(c *cluster) {
		at := toldBeforeTheStatus(c)
		c.restartedAt("web-0", at, 1)
		c.advance(time.Minute)
		c.expect("the report is of the restart before")
		c.expectState("meanwhile", policy.RollingOut, policy.ReasonRestartingInPlace)
		c.restartedAt("web-0", time.Now(), 2)
		c.advance(5 * time.Second)
		c.expect("it has restarted again", "2m32.5s progress web", "2m32.5s tell web-1")
	})
}

// Nor for the third one, if the second is reported late too.
func TestInPlace_DoesNotMistakeTheSecondRestart(t *testing.T) {
	inCluster(t, func(c *cluster) {
		at := toldBeforeTheStatus(c)
		c.restartedAt("web-0", at, 1)
		c.advance(20 * time.Second)
		at = time.Now()
		c.advance(time.Second)
		c.set(secret("db", "4"))
		c.advance(10 * time.Second)
		if got := fmt.Sprint(c.tells()); got != "[web-0]" {
			t.Errorf("told %s, want the same pod", got)
		}
		c.restartedAt("web-0", at, 2)
		c.advance(10 * time.Second)
		if got := c.tells(); len(got) != 0 {
			t.Errorf("told %v before the third restart", got)
		}
	})
}

// If the restarter has seen only the second value, its pod restarts once.
func TestInPlace_OneRestartIsEnoughIfItCameLater(t *testing.T) {
	inCluster(t, func(c *cluster) {
		toldBeforeTheStatus(c)
		c.restartedAt("web-0", time.Now(), 1)
		c.advance(5 * time.Second)
		c.expect("it has restarted", "1m32.5s progress web", "1m32.5s tell web-1")
	})
}

// If the clock of the node is behind, it only takes longer, also with another leader.
func TestInPlace_ANodeWhoseClockIsBehindDelays(t *testing.T) {
	inCluster(t, func(c *cluster) {
		toldBeforeTheStatus(c)
		c.restartedAt("web-0", time.Now().Add(-time.Hour), 1)
		c.advance(time.Minute)
		c.resign()
		c.newProcess()
		c.synced()
		c.lead()
		c.advance(2*time.Minute - 15*time.Second)
		c.expect("it may be the restart before")
		c.advance(15 * time.Second)
		if got := c.took(); len(got) != 2 || !strings.HasSuffix(got[0], "progress web") || !strings.HasSuffix(got[1], "tell web-1") {
			t.Errorf("requests = %v", got)
		}
	})
}

// A pod that never restarts as a whole, because its node no longer does that, is drained each time it is told.
func TestInPlace_TellsAFailedPodLessAndLess(t *testing.T) {
	inCluster(t, func(c *cluster) {
		restartingInPlace(c)
		tells := 1
		for range 60 {
			c.advance(time.Minute)
			n := len(c.tells())
			tells += n
			if n > 0 { // the restarter ends alone
				edit(c, pod("web-0", ""), func(p *corev1.Pod) { p.Status.InitContainerStatuses[0].RestartCount++ })
			}
		}
		if tells < 5 || tells > 6 {
			t.Errorf("told %d times within an hour", tells)
		}
		c.expectState("it fails", policy.Failed, policy.ReasonRestartFailed)
		c.advance(5 * time.Hour)
		if n := len(c.tells()); n < 4 || n > 6 {
			t.Errorf("told %d times within five hours, want about every hour", n)
		}
		c.restart("web-0", true)
		c.advance(5 * time.Second)
		c.expectState("it has restarted", policy.RollingOut, policy.ReasonRestartingInPlace)
	})
}

// What has failed is recorded once, however long the name of the pod is.
func TestInPlace_RecordsAFailureOnce(t *testing.T) {
	inCluster(t, func(c *cluster) {
		withPodsInPlace(c)
		long := strings.Repeat("n", 253)
		c.remove(pod("web-0", ""))
		c.set(podInPlace(long))
		c.advance(time.Minute)
		c.took()
		c.set(secret("db", "2"))
		c.advance(time.Second)
		if got := c.tells(); len(got) != 1 || got[0] != long {
			t.Fatalf("told %v", got)
		}
		c.restart(long, false)
		c.told()
		c.advance(time.Hour)
		if got := c.took(); len(got) != 1 || !strings.HasSuffix(got[0], "progress web") {
			t.Errorf("requests = %v", got)
		}
		failed := 0
		for _, e := range c.told() {
			if strings.HasSuffix(e, "Pod "+long+" has not become ready within 10m0s of its restart in place.") {
				failed++
			}
			if strings.Contains(e, "ConfigConflict") {
				t.Errorf("event %s", e)
			}
		}
		if failed != 1 {
			t.Errorf("%d events say that it has failed", failed)
		}
	})
}

// While all containers restart, they may look as if they never ran. The others wait for them all the same.
func TestInPlace_WaitsForContainersThatAreRestarting(t *testing.T) {
	inCluster(t, func(c *cluster) {
		withManyPods(c, 4, intstr.FromInt32(2))
		c.advance(time.Minute)
		c.took()
		c.set(secret("db", "2"))
		c.advance(time.Second)
		if got := c.tells(); len(got) != 1 || got[0] != "web-0" {
			t.Fatalf("told %v", got)
		}
		c.status("web-0", false, never("restarter"), never("app"))
		c.unavailable(1)
		c.advance(time.Minute)
		c.set(secret("db", "3"))
		c.advance(time.Minute)
		if got := c.tells(); len(got) != 1 || got[0] != "web-0" {
			t.Errorf("told %v, want the same pod", got)
		}
		c.status("web-0", true, first("restarter"), first("app"))
		c.advance(5 * time.Second)
		if got := c.tells(); len(got) != 1 || got[0] != "web-1" {
			t.Errorf("told %v, want the next one", got)
		}
	})
}
