// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	clienttesting "k8s.io/client-go/testing"

	"github.com/configdep/configdep/pkg/policy"
)

// TestReconcile_FailuresCountUntilWhatFailedIsNotToBeDone: then the next request starts without failures.
func TestReconcile_FailuresCountUntilWhatFailedIsNotToBeDone(t *testing.T) {
	t.Run("no longer needed", func(t *testing.T) {
		inCluster(t, func(c *cluster) {
			c.synced()
			c.set(secret("db", "1"))
			c.set(deployment("web", "db"))
			c.refusing(func(clienttesting.Action) error { return errRefused })
			c.lead()
			c.advance(80 * time.Millisecond)
			if got := c.took(); len(got) != 5 {
				t.Fatalf("the request fails: %v", got)
			}
			reload := func(value string) {
				edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Annotations[policy.ReloadAnnotation] = value })
			}
			reload("off")
			c.advance(time.Second)
			c.expect("opted out")
			reload("auto")
			c.advance(9 * time.Millisecond)
			c.expect("opted in again", "1.08s baseline web: Forbidden", "1.085s baseline web: Forbidden")
		})
	})
	t.Run("postponed", func(t *testing.T) {
		inCluster(t, func(c *cluster) {
			adopted(c)
			c.refusing(func(clienttesting.Action) error { return errRefused })
			c.set(secret("db", "2"))
			c.advance(time.Second + 80*time.Millisecond)
			if got := c.took(); len(got) != 5 {
				t.Fatalf("the request fails: %v", got)
			}
			refused := "Warning ConfigReloadFailed Deployment/shop/web: A restart is due because Secret/db has changed, but it failed and will be retried: " + errRefused.Error()
			c.expectEvents("each time", slices.Repeat([]string{refused}, 5)...)
			c.set(secret("db", "3"))
			c.advance(time.Second + 159*time.Millisecond)
			c.expect("it has settled again", "1m2.08s rollout web: Forbidden")
			c.advance(time.Millisecond)
			c.expect("later still", "1m2.24s rollout web: Forbidden")
		})
	})
}

// TestReconcile_StepThatEndsWithTheLeaderIsNotTold: an eviction that is canceled was not refused.
func TestReconcile_StepThatEndsWithTheLeaderIsNotTold(t *testing.T) {
	inCluster(t, func(c *cluster) {
		aboutToRecreate(c)
		c.refusing(func(a clienttesting.Action) error {
			if a.GetSubresource() != "eviction" {
				return nil
			}
			go c.resign()
			<-time.After(time.Millisecond)
			return context.Canceled
		})
		c.advance(time.Minute)
		c.expectEvents("it leads no more", "Normal ConfigReloaded Deployment/shop/web: Restarted because Secret/db has changed")
	})
}
