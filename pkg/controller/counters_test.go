// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"testing"
	"time"

	"github.com/configdep/configdep/pkg/ingest/ingesttest"
)

// TestReconcile_RestoreOfEtcdLosesNoChange: revisions go back, below those of the controller's own writes.
func TestReconcile_RestoreOfEtcdLosesNoChange(t *testing.T) {
	inCluster(t, func(c *cluster) {
		adopted(c)
		c.set(secret("db", "2"))
		c.advance(time.Hour)
		c.expect("before", "1m1s rollout web")
		c.mu.Lock()
		c.Version = 10
		db, web := c.Stored(secret("db", "")), c.Stored(deployment("web", "db"))
		for _, o := range []ingesttest.Object{db, web} {
			o.SetResourceVersion("5")
		}
		if err := c.Replay().ListOf("deployments", "10", web.DeepCopyObject()); err != nil {
			t.Fatal(err)
		}
		c.mu.Unlock()
		c.Index().Reset()
		c.synced()
		c.set(live(c, deployment("web", "db")))
		c.advance(time.Hour)
		c.expect("restored")
		for i := range 3 {
			c.set(secret("db", fmt.Sprint("restored-", i)))
			c.advance(time.Hour)
			c.expectOneRestart(fmt.Sprint("change ", i))
		}
	})
}
