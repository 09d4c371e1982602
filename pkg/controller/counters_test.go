// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/configdep/configdep/pkg/ingest/ingesttest"
	"github.com/configdep/configdep/pkg/policy"
)

// TestReconcile_SeveralRevisionCountersLoseNoChange: the revisions of workloads and of sources are
// unrelated.
func TestReconcile_SeveralRevisionCountersLoseNoChange(t *testing.T) {
	for counters, ahead := range map[string]map[string]uint64{
		"the counter of workloads is ahead": {"deployments": 50_000},
		"the counter of sources is ahead":   {"secrets": 50_000},
	} {
		for name, before := range map[string]func(*cluster){
			"pods that are older than the process": func(c *cluster) {
				c.set(deployment("web", "db"))
				several(c)
				c.lead()
			},
			"pods that are younger": func(c *cluster) {
				several(c)
				c.set(deployment("web", "db"))
				c.lead()
			},
			"opted in later": func(c *cluster) {
				web := deployment("web", "db")
				web.Annotations = nil
				c.set(web)
				several(c)
				c.lead()
				c.advance(time.Minute)
				edit(c, web, func(d *appsv1.Deployment) { d.Annotations = map[string]string{policy.ReloadAnnotation: "auto"} })
			},
		} {
			t.Run(counters+", "+name, func(t *testing.T) {
				inCluster(t, func(c *cluster) {
					c.Ahead = ahead
					c.newProcess()
					c.set(secret("db", "1"))
					before(c)
					c.advance(time.Minute)
					if got := c.took(); len(got) != 1 || !strings.HasSuffix(got[0], "baseline web") {
						t.Errorf("requests after opting in = %v, want no restart", got)
					}
					for i := range 5 {
						c.set(secret("db", fmt.Sprint("changed-", i)))
						c.advance(time.Hour)
						c.expectOneRestart(fmt.Sprint("change ", i))
					}
					c.expectState("at last", policy.InSync, "ContentApplied")
				})
			})
		}
	}
}

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
