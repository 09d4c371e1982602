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

func dropRecord(d *appsv1.Deployment) {
	delete(d.Annotations, policy.ConfigHashAnnotation)
	delete(d.Annotations, policy.AppliedSourcesAnnotation)
}

// TestReconcile_OwnerThatStripsTheRecordWhileContentSettles: the change is remembered, although the pods
// are older than the process and the record was removed.
func TestReconcile_OwnerThatStripsTheRecordWhileContentSettles(t *testing.T) {
	for name, strip := range map[string]func(*appsv1.Deployment){
		"all of it":       dropRecord,
		"a part of it":    func(d *appsv1.Deployment) { delete(d.Annotations, policy.AppliedSourcesAnnotation) },
		"everything":      func(d *appsv1.Deployment) { d.Annotations = map[string]string{policy.ReloadAnnotation: "auto"} },
		"again and again": func(d *appsv1.Deployment) { dropRecord(d) },
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				adopted(c)()
				newLeader(c)
				c.set(secret("db", "2"))
				c.advance(500 * time.Millisecond)
				edit(c, deployment("web", "db"), strip)
				if name == "again and again" {
					edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Labels = map[string]string{"by": "the owner"} })
				}
				if d := c.decision(); d.State == policy.InSync || !d.Stale {
					t.Errorf("decision without the record = %+v", d)
				}
				c.advance(500 * time.Millisecond)
				c.expect("it has settled", "2m1s rollout web")
				c.advance(time.Hour)
				c.expect("once")
			})
		})
	}
}

// TestReconcile_OwnerThatStripsTheRecordLosesNoChange: the record is always removed before content settles.
func TestReconcile_OwnerThatStripsTheRecordLosesNoChange(t *testing.T) {
	for name, before := range map[string]func(*cluster){
		"pods that are older than the process": func(c *cluster) { adopted(c)(); newLeader(c) },
		"pods that are younger":                func(c *cluster) { adopted(c) },
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				before(c)
				c.owning(stripping(c))
				stripping(c)()
				for i := range 5 {
					c.set(secret("db", fmt.Sprint("changed-", i)))
					c.advance(500 * time.Millisecond)
					stripping(c)()
					c.advance(6 * time.Minute)
					c.expectOneRestart(fmt.Sprint("change ", i))
				}
			})
		})
	}
}
