// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"strconv"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
)

// TestReconcile_RecordThatKnowsMore has a leader that has read the record of another replica, but not yet the recorded content:
// it would restart the pods because of older content. Once it has read everything up to the record, a difference is a
// change.
func TestReconcile_RecordThatKnowsMore(t *testing.T) {
	for name, tt := range map[string]struct {
		then func(c *cluster, late func())
		want []string
	}{
		"the content arrives": {func(_ *cluster, late func()) { late() }, nil},
		"there is no other content": {func(c *cluster, _ func()) {
			for _, resource := range []string{"configmaps", "cronjobs", "daemonsets", "deployments", "jobs", "namespaces", "pods", "replicasets", "secrets", "statefulsets"} {
				if err := c.Replay().Bookmark(resource, strconv.FormatUint(c.Version, 10)); err != nil {
					c.t.Fatal(err)
				}
			}
		}, []string{"2m1s rollout web"}},
		"a change after the record arrives": {func(c *cluster, late func()) {
			late()
			c.advance(time.Second)
			c.set(secret("db", "3"))
		}, []string{"2m2s rollout web"}},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				c.synced()
				c.set(secret("db", "2"))
				c.set(deployment("web", "db"))
				other := c.present()
				c.newProcess()
				c.set(secret("db", "1"))
				c.synced()
				defer c.lead()()
				c.advance(time.Minute)
				if got := c.took(); len(got) != 1 {
					t.Fatalf("requests to adopt the workload = %v", got)
				}
				late := c.late(func() { c.set(secret("db", "2")) })
				c.recordedAs(other)
				c.advance(time.Minute)
				c.expect("the content has yet to come")
				tt.then(c, late)
				c.advance(time.Minute)
				c.expect(name, tt.want...)
			})
		})
	}
}

// late makes a change that reaches the index only when the returned function is called.
func (c *cluster) late(change func()) (come func()) {
	return c.Late(change)
}

// TestReconcile_RecordThatKnowsMoreThanTheTemplate: another replica has restarted a workload by evicting its pods, because of content
// that this replica has yet to read. The content that it has read is older than the template, so the pods seem to have read it.
func TestReconcile_RecordThatKnowsMoreThanTheTemplate(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.synced()
		c.set(secret("db", "2"))
		c.set(deployment("web", "db"))
		other := c.present()
		c.newProcess()
		c.set(secret("db", "1"))
		c.synced()
		defer c.lead()()
		edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "app:2" })
		c.advance(time.Minute)
		c.took()
		late := c.late(func() { c.set(secret("db", "2")) })
		c.recordedAs(other)
		c.advance(time.Minute)
		c.expect("the content has yet to come")
		late()
		c.advance(time.Minute)
		c.expect("the content has come")
		c.set(secret("db", "1"))
		c.advance(time.Minute)
		c.expectOneRestart("it changes back")
	})
}
