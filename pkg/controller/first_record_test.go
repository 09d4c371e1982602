// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/configdep/configdep/pkg/policy"
)

// recordedByAnother makes another replica record the current content, without a restart.
func (c *cluster) recordedByAnother() {
	c.t.Helper()
	c.recordedAs(c.present())
}

// recordedAs makes another replica write a record.
func (c *cluster) recordedAs(r policy.Record) {
	c.t.Helper()
	sources, err := json.Marshal(r.Sources)
	if err != nil {
		c.t.Fatal(err)
	}
	edit(c, deployment("web", "db"), func(d *appsv1.Deployment) {
		d.Annotations[policy.ConfigHashAnnotation], d.Annotations[policy.AppliedSourcesAnnotation] = r.Hash, string(sources)
	})
}

// TestReconcile_FirstRecordOfAnotherReplica: content changes after a workload has opted in. Another replica does not see the change,
// and records the current content.
func TestReconcile_FirstRecordOfAnotherReplica(t *testing.T) {
	for name, leads := range map[string]bool{"while it leads": false, "before this one leads": true} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				c.synced()
				c.set(secret("db", "1"))
				off := deployment("web", "db")
				off.Annotations = map[string]string{}
				c.set(off)
				c.rolled("1")
				c.started("web-0", "app")
				c.newProcess()
				c.synced()
				c.advance(time.Hour)
				edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Annotations[policy.ReloadAnnotation] = "auto" })
				c.advance(time.Hour)
				c.set(secret("db", "2"))
				c.advance(time.Hour)
				c.recordedByAnother()
				c.interceptFirst("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("no route") })
				if leads {
					c.lead()
				} else {
					c.resign = func() {}
					c.standBy()
				}
				c.expectState("it has yet to look at the pods", policy.Pending, policy.ReasonVerifying)
				c.advance(time.Hour)
				if got := c.kinds(); got != "mixed" && (!leads || got != "mixed rollout") {
					t.Errorf("the controller wrote %q", got)
				}
			})
		})
	}
}

// TestReconcile_FirstRecordOfPodsThatWaited: a Secret is created that pods have been waiting for. A replica that started after their
// creation does not know that they have read it, but the leader does.
func TestReconcile_FirstRecordOfPodsThatWaited(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.synced()
		c.set(deployment("web", "db"))
		c.rolled("1")
		c.newProcess()
		c.synced()
		c.resign = func() {}
		c.standBy()
		c.advance(time.Hour)
		c.set(secret("db", "1"))
		c.advance(time.Second)
		c.started("web-0", "app")
		c.recordedByAnother()
		c.advance(time.Hour)
		c.expectState("after an hour", policy.InSync, "ContentApplied")
		if got := c.kinds(); got != "" {
			t.Errorf("the controller wrote %q", got)
		}
	})
}

// TestStandBy_OnceARestartIsDue: a standby replica knows better than the record with which content pods run, and a restart has to
// wait for some time.
func TestStandBy_OnceARestartIsDue(t *testing.T) {
	for _, settle := range []string{"1s", "1m"} {
		t.Run(settle, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				withPod(c)
				edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Annotations[policy.SettleAnnotation] = settle })
				c.advance(time.Minute)
				c.took()
				c.standBy()
				c.advance(time.Minute)
				c.set(secret("db", "2"))
				c.advance(time.Second)
				edit(c, deployment("web", "db"), func(d *appsv1.Deployment) {
					d.Spec.Template.Spec.Containers[0].Image = "app:2"
					d.Generation, d.Status.ObservedGeneration = 2, 2
				})
				c.advance(time.Second)
				c.started("web-1", "app")
				c.advance(time.Second)
				c.set(secret("db", "1"))
				c.advance(time.Hour)
				if got := c.kinds(); got != "mixed" {
					t.Errorf("requests of the standby replica = %q, want a record for the leader", got)
				}
			})
		})
	}
}
