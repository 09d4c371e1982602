// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/configdep/configdep/pkg/policy"
)

// TestReconcile_RestartDuringARolloutMakesANewTemplate, whatever its hash: earlier pods may have a template
// with the same hash.
func TestReconcile_RestartDuringARolloutMakesANewTemplate(t *testing.T) {
	for name, running := range map[string]bool{"a rollout is running": true, "it is complete": false} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				adopted(c)
				if running {
					edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Status.UpdatedReplicas = 0 })
				}
				c.set(secret("db", "2"))
				c.advance(time.Minute)
				c.expect("it is restarted", "1m1s rollout web")
				template := live(c, deployment("web", "db")).Spec.Template
				if timed := template.Annotations[policy.ReloadedAtAnnotation] != ""; timed != running {
					t.Errorf("annotations of the template = %v", template.Annotations)
				}
			})
		})
	}
}
