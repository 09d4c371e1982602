// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/configdep/configdep/pkg/policy"
)

// TestReconcile_SettleTimeBeginsWhenARestartIsPossible: while a source is missing, or the owner has
// paused the workload, content does not settle. Changes that come together afterwards cause one restart.
func TestReconcile_SettleTimeBeginsWhenARestartIsPossible(t *testing.T) {
	for name, block := range map[string]struct{ on, off func(*cluster) }{
		"missing": {
			func(c *cluster) { c.remove(live(c, secret("db", ""))) },
			func(c *cluster) { c.set(secret("db", "2")) },
		},
		"paused": {
			func(c *cluster) {
				c.set(secret("db", "2"))
				edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Spec.Paused = true })
			},
			func(c *cluster) {
				c.set(secret("db", "3"))
				edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Spec.Paused = false })
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				adopted(c)
				block.on(c)
				c.advance(time.Hour)
				c.expect("blocked")
				block.off(c)
				c.advance(900 * time.Millisecond)
				c.set(secret("db", "4"))
				c.advance(time.Minute)
				c.expect("one restart", "1h1m1.9s rollout web")
			})
		})
	}
}

// TestReconcile_NextSettleTimeBeginsAfterTheRestart: content that changes during the patch does not
// count as restless since the first change.
func TestReconcile_NextSettleTimeBeginsAfterTheRestart(t *testing.T) {
	inCluster(t, func(c *cluster) {
		adopted(c)
		edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Annotations[policy.MinIntervalAnnotation] = "0" })
		for i := range 10 { // until a restart is due although content has not settled
			c.set(secret("db", fmt.Sprint("v", i)))
			c.advance(999 * time.Millisecond)
		}
		c.set(secret("db", "before"))
		c.hold()
		c.advance(10 * time.Millisecond)
		c.replaySource(t, secret("db", "after"))
		c.expect("restless for ten seconds", "1m10s rollout web")
		c.release()
		c.advance(900 * time.Millisecond)
		c.set(secret("db", "later"))
		c.advance(time.Minute)
		c.expect("the rest settles", "1m11.9s rollout web")
	})
}

// TestReconcile_RestlessTimeStartsOverWithAnotherRecord: another client, such as another leader or a
// Reload, has restarted the workload, and content changes again before this is seen.
func TestReconcile_RestlessTimeStartsOverWithAnotherRecord(t *testing.T) {
	inCluster(t, func(c *cluster) {
		adopted(c)
		restless := func(times int) {
			for range times {
				c.set(secret("db", time.Now().String()))
				c.advance(999 * time.Millisecond)
			}
		}
		restless(10)
		edit(c, deployment("web", "db"), func(d *appsv1.Deployment) {
			hash := d.Annotations[policy.ConfigHashAnnotation]
			d.Annotations[policy.ConfigHashAnnotation] = hash[:len(hash)-4] + "0000"
			delete(d.Annotations, policy.AppliedSourcesAnnotation)
		})
		restless(5)
		c.expect("restless, but not for ten seconds")
		c.advance(time.Minute)
		c.expect("it has settled", "1m14.986s rollout web")
	})
}
