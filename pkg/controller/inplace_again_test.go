// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/configdep/configdep/pkg/policy"
)

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
