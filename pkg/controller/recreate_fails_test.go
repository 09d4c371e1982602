// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	clienttesting "k8s.io/client-go/testing"

	"github.com/configdep/configdep/pkg/policy"
)

// TestRecreate_WriteOfARecreateThatFailsIsTriedAgain, in every step.
func TestRecreate_WriteOfARecreateThatFailsIsTriedAgain(t *testing.T) {
	for name, tc := range map[string]struct{ annotation, value, write string }{
		"the eviction begins again": {policy.RecreatingAnnotation, "now", "recreate web"},
		"the strategy changed":      {policy.StrategyAnnotation, "annotation", "rollout web"},
		"the eviction ends":         {policy.RecreatingAnnotation, "none", "recreated web"},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				recreating(c)
				c.refusing(func(clienttesting.Action) error { return errRefused })
				edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Annotations[tc.annotation] = tc.value })
				c.advance(10 * time.Millisecond)
				c.expect("it fails", "1m1.5s "+tc.write+": Forbidden", "1m1.505s "+tc.write+": Forbidden")
				if events := c.told(); len(events) != 2 || !strings.Contains(events[0], " ConfigReloadFailed ") || events[1] != events[0] {
					t.Errorf("events = %q, want one for each failure", events)
				}
				c.refusing(nil)
				c.advance(time.Second)
				if got := c.took(); len(got) == 0 || got[0] != "1m1.515s "+tc.write {
					t.Errorf("next requests = %v", got)
				}
			})
		})
	}
}

// TestRecreate_TellsThatItWaitsForARollout, even if no change triggers a reconcile.
func TestRecreate_TellsThatItWaitsForARollout(t *testing.T) {
	inCluster(t, func(c *cluster) {
		recreating(c)
		edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Status.UpdatedReplicas = 1 })
		c.replace(true)
		c.advance(2 * time.Minute)
		c.expect("it waits")
		c.expectEvents("it waits", "Normal ConfigReloadWaiting Deployment/shop/web: The next pod will be evicted later: 1 of 3 pods is up to date.")
	})
}

// TestRecreate_TellsOfEachWaitByItself: two short waits for the same thing are not one long wait.
func TestRecreate_TellsOfEachWaitByItself(t *testing.T) {
	inCluster(t, func(c *cluster) {
		recreating(c)
		c.advance(40 * time.Second)
		c.replace(true)
		c.advance(5 * time.Second)
		c.expect("the second", "1m41.5s evict web-1")
		c.advance(40 * time.Second)
		c.expectEvents("it has waited for 40 seconds twice")
		c.advance(30 * time.Second)
		c.expectEvents("and once for a minute",
			"Normal ConfigReloadWaiting Deployment/shop/web: The next pod will be evicted later: 2 of 3 pods are ready.")
	})
}
