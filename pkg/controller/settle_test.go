// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"time"
)

// TestReconcile_SettleTimeBeginsWhenARestartIsPossible: while a source is missing, or the owner has
// paused the workload, content does not settle. Changes that come together afterwards cause one restart.
func TestReconcile_SettleTimeBeginsWhenARestartIsPossible(t *testing.T) {
	for name, block := range map[string]struct{ on, off func(*cluster) }{
		"missing": {
			func(c *cluster) { c.remove(live(c, secret("db", ""))) },
			func(c *cluster) { c.set(secret("db", "2")) },
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
