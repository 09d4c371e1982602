// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/policy"
)

// TestReconcile_WhatIsBeingDeletedIsLeftAlone: sources may be deleted before the workloads that use them.
func TestReconcile_WhatIsBeingDeletedIsLeftAlone(t *testing.T) {
	for name, end := range map[string]func(*cluster){
		"the workload": func(c *cluster) {
			edit(c, deployment("web", "db"), func(d *appsv1.Deployment) {
				d.DeletionTimestamp, d.Finalizers = new(metav1.Now()), []string{"foregroundDeletion"}
			})
		},
		"its namespace": func(c *cluster) {
			c.set(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, DeletionTimestamp: new(metav1.Now()), Finalizers: []string{"kubernetes"}}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				adopted(c)
				c.set(secret("db", "2"))
				c.advance(500 * time.Millisecond)
				end(c)
				c.set(secret("db", "3"))
				c.advance(time.Minute)
				c.remove(live(c, secret("db", "")))
				c.advance(time.Hour)
				c.expect("being deleted")
				c.expectEvents("being deleted")
				c.expectState("being deleted", policy.InSync, policy.ReasonTerminating)
			})
		})
	}
}
