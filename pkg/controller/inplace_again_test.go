// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/record"
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

// The containers of web-0 have restarted, content has changed after that, and the pod has been told of a second restart, all before its kubelet
// reports the first one, which is not taken for the second.
func TestInPlace_DoesNotMistakeAnEarlierRestart(t *testing.T) {
	for name, then := range map[string]func(c *cluster, at time.Time){
		"it is told of both": func(c *cluster, at time.Time) {
			c.restartedAt("web-0", at, 1)
			c.advance(time.Minute)
			c.expect("the report is of the restart before")
			c.expectState("meanwhile", decide.RollingOut, record.ReasonRestartingInPlace)
			c.restartedAt("web-0", time.Now(), 2)
		},
		"content changes once more, before the second one is reported": func(c *cluster, at time.Time) {
			c.restartedAt("web-0", at, 1)
			c.advance(20 * time.Second)
			at = time.Now()
			c.advance(time.Second)
			c.set(secret("db", "4"))
			c.advance(10 * time.Second)
			c.expectTells("it begins again", "web-0")
			c.restartedAt("web-0", at, 2)
			c.advance(10 * time.Second)
			c.expectTells("the report is of the second restart")
			c.restartedAt("web-0", time.Now(), 3)
		},
		"its restarter has seen only the second value": func(c *cluster, _ time.Time) { c.restartedAt("web-0", time.Now(), 1) },
		"the clock of its node is behind, which only delays": func(c *cluster, _ time.Time) {
			c.restartedAt("web-0", time.Now().Add(-time.Hour), 1)
			c.advance(time.Minute)
			c.nextLeader()
			c.advance(105 * time.Second)
			c.expect("it may be the restart before")
			c.advance(10 * time.Second)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				restartingInPlace(c)
				c.advance(20 * time.Second)
				at := time.Now()
				c.advance(time.Second)
				c.set(secret("db", "3"))
				c.advance(10 * time.Second)
				c.expect("it begins again", "1m23.5s in place web", "1m23.5s tell web-0")
				then(c, at)
				c.advance(5 * time.Second)
				c.expectDone("it has restarted", "progress web", "tell web-1")
			})
		})
	}
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
		c.expectState("it fails", decide.Failed, decide.ReasonRestartFailed)
		c.advance(5 * time.Hour)
		if n := len(c.tells()); n < 4 || n > 6 {
			t.Errorf("told %d times within five hours, want about every hour", n)
		}
		c.restart("web-0", true)
		c.advance(5 * time.Second)
		c.expectState("it has restarted", decide.RollingOut, record.ReasonRestartingInPlace)
	})
}

// While all containers restart, they may look as if they never ran. The others wait for them all the same.
func TestInPlace_WaitsForContainersThatAreRestarting(t *testing.T) {
	inCluster(t, func(c *cluster) {
		withPodsInPlace(c, 4)
		c.maxUnavailable(2)
		c.set(secret("db", "2"))
		c.advance(time.Second)
		c.expectTells("at first", "web-0")
		c.status("web-0", false, never("restarter"), never("app"))
		c.unavailable(1)
		c.advance(time.Minute)
		c.set(secret("db", "3"))
		c.advance(time.Minute)
		c.expectTells("again", "web-0")
		c.status("web-0", true, first("restarter"), first("app"))
		c.advance(5 * time.Second)
		c.expectTells("it is back", "web-1")
	})
}
