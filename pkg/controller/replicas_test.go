// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/configdep/configdep/pkg/ingest/ingesttest"
)

// TestReconcile_NoReplicasAreNotRestarted: only the record is written, and later pods read the recorded
// content.
func TestReconcile_NoReplicasAreNotRestarted(t *testing.T) {
	for name, tc := range map[string]struct {
		workload ingesttest.Object
		scale    func(c *cluster, n int32)
	}{
		"Deployment": {deployment("web", "db"), func(c *cluster, n int32) {
			edit(c, deployment("web", "db"), func(d *appsv1.Deployment) {
				d.Spec.Replicas = new(n)
				d.Status.Replicas, d.Status.UpdatedReplicas, d.Status.AvailableReplicas = n, n, n
			})
		}},
		"StatefulSet": {statefulSet("web", "db"), func(c *cluster, n int32) {
			edit(c, statefulSet("web", "db"), func(s *appsv1.StatefulSet) {
				s.Spec.Replicas = new(n)
				s.Status.Replicas, s.Status.UpdatedReplicas, s.Status.ReadyReplicas = n, n, n
			})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				c.synced()
				c.set(secret("db", "1"))
				c.set(tc.workload)
				c.lead()
				tc.scale(c, 0)
				c.advance(time.Minute)
				c.expect("no pods run", "0s baseline web")
				for i := range 10 {
					c.set(secret("db", fmt.Sprint("changed-", i)))
					c.advance(time.Minute)
					c.expect("content changes", fmt.Sprintf("%dm0s baseline web", i+1))
				}
				tc.scale(c, 3)
				c.advance(time.Hour)
				c.expect("scaled up")
				c.expectEvents("nothing was restarted")
				c.set(secret("db", "with pods"))
				c.advance(time.Minute)
				c.expect("with pods", "1h11m1s rollout web")
			})
		})
	}
}
