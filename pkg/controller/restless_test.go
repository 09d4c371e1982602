// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
)

// TestReconcile_RestlessTimeStartsOverWhenThereIsNothingToSettle: content differed, and then the workload
// could or should not be restarted. The time until then does not count.
func TestReconcile_RestlessTimeStartsOverWhenThereIsNothingToSettle(t *testing.T) {
	pause := func(c *cluster, paused bool) {
		edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Spec.Paused = paused })
	}
	for name, tc := range map[string]struct{ on, off func(*cluster) }{
		"paused":  {func(c *cluster) { pause(c, true) }, func(c *cluster) { pause(c, false) }},
		"missing": {func(c *cluster) { c.remove(live(c, secret("db", ""))) }, func(*cluster) {}},
		"back":    {func(c *cluster) { c.set(secret("db", "1")) }, func(*cluster) {}},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				adopted(c)
				c.set(secret("db", "2"))
				c.advance(500 * time.Millisecond)
				tc.on(c)
				c.advance(time.Hour)
				c.took()
				c.set(secret("db", "3"))
				tc.off(c)
				c.advance(900 * time.Millisecond)
				c.expect("it settles")
				c.set(secret("db", "4"))
				c.advance(time.Minute)
				c.expect("it has settled", "1h1m2.4s rollout web")
			})
		})
	}
}
