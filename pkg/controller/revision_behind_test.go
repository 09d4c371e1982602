// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
)

// TestRevision_OfADeploymentThatTheIndexDoesNotKnow: the revision proves nothing, so in doubt the pods
// are restarted, which the version of the Deployment then prevents. The revision of a Deployment that
// was created again is not even looked up.
func TestRevision_OfADeploymentThatTheIndexDoesNotKnow(t *testing.T) {
	for name, change := range map[string]func(*appsv1.Deployment){
		"the Deployment that the index knows":           nil,
		"a template that its controller has yet to see": func(d *appsv1.Deployment) { d.Generation, d.Status.ObservedGeneration = 7, 6 },
		"another of the same name":                      func(d *appsv1.Deployment) { d.UID = "uid-another" },
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				c.synced()
				content := changeBoth(c, deployment("web", "db"), nil)
				c.set(replicaSet("web-2", "2", "uid-web", content.Add(time.Second)))
				c.newProcess()
				c.synced()
				if change == nil {
					c.lead()
					c.expect("at once", "1m2s verified web")
					return
				}
				c.hold()
				edit(c, deployment("web", "db"), change)
				c.lead()
				if name == "another of the same name" {
					c.expect("at once")
					return
				}
				c.expect("at once", "1m2s rollout web: Conflict")
			})
		})
	}
}
