// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	"github.com/configdep/configdep/pkg/policy"
)

// standBy makes a replica that has led stand by until the returned function is called.
func (c *cluster) standBy() (stop func()) {
	c.resign()
	c.controller.AnotherLeads(true)
	ctx, cancel := context.WithCancel(c.context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.controller.StandBy(ctx, c.Index())
	}()
	stop = func() {
		cancel()
		<-done
	}
	c.t.Cleanup(stop)
	return stop
}

// TestStandBy: content changes and changes back, unseen by the leader.
func TestStandBy(t *testing.T) {
	changeBack := func(c *cluster, between func()) {
		c.set(secret("db", "2"))
		c.advance(5 * time.Minute)
		between()
		c.advance(5 * time.Minute)
		c.set(secret("db", "1"))
	}
	thereAndBack := func(c *cluster) { changeBack(c, func() {}) }
	readIt := func(c *cluster) { changeBack(c, func() { c.started("web-1", "app") }) }
	for name, tt := range map[string]struct {
		do    func(*cluster)
		want  string // kinds of requests
		state policy.State
	}{
		"no pod has read it": {thereAndBack, "", policy.InSync},
		"a pod has read it":  {readIt, "mixed", policy.Pending},
		"pods cannot be listed at first": {func(c *cluster) {
			c.interceptFirst("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("no route") })
			readIt(c)
		}, "mixed", policy.Pending},
		"the record cannot be written": {func(c *cluster) {
			c.refusing(func(clienttesting.Action) error {
				return apierrors.NewForbidden(schema.GroupResource{}, "web", errors.New("no"))
			})
			readIt(c)
		}, "forbidden", policy.Pending},
		"the leader has recorded its inspection": {func(c *cluster) {
			readIt(c)
			c.advance(standbyPause / 3)
			edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Annotations[policy.VerifiedAnnotation] = "2026-01-01T00:00:00Z 1" })
		}, "", policy.InSync},
		"content has changed for good": {func(c *cluster) { c.set(secret("db", "2")) }, "", policy.Pending},
		"the record is removed": {func(c *cluster) {
			edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Annotations = map[string]string{policy.ReloadAnnotation: "auto"} })
		}, "", policy.InSync},
		"the workload has opted out": {func(c *cluster) {
			edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Annotations[policy.ReloadAnnotation] = "off" })
			readIt(c)
		}, "", policy.Unmanaged},
		"a source is missing": {func(c *cluster) { c.remove(live(c, configMap("late", "1"))) }, "", policy.Blocked},
		"the replica has seen a part in a list": {func(c *cluster) {
			c.hold()
			c.set(secret("db", "2"))
			c.synced()
			c.started("web-1", "app")
			c.set(secret("db", "3"))
			c.advance(time.Minute)
			c.set(secret("db", "1"))
		}, "", policy.InSync},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				withPod(c)
				c.told()
				stop := c.standBy()
				tt.do(c)
				c.advance(standbyPause/2 - time.Millisecond)
				c.expect("it is left to the leader")
				c.advance(standbyPause/2 + time.Minute)
				if d := c.decision(); d.State != tt.state {
					t.Errorf("state = %s (%s), want %s", d.State, d.Reason, tt.state)
				}
				c.advance(time.Hour)
				switch got := c.kinds(); {
				case tt.want == "forbidden" && strings.Count(got, "mixed") < 2, tt.want != "forbidden" && got != tt.want:
					t.Errorf("requests of the replica = %q, want %q", got, tt.want)
				}
				c.expectEvents("it tells nothing")
				stop()
				if c.controller.queue != nil {
					t.Error("the queue is not empty")
				}
			})
		})
	}
}

// TestStandBy_Pause: doubts are left to the leader for some time, so that the time until an inspection is limited.
func TestStandBy_Pause(t *testing.T) {
	inCluster(t, func(c *cluster) {
		withPod(c)
		c.standBy()
		c.set(secret("db", "2"))
		c.advance(time.Minute)
		c.started("web-1", "app")
		c.advance(time.Minute)
		c.set(secret("db", "1"))
		c.advance(standbyPause)
		if got := c.kinds(); got != "mixed" {
			t.Errorf("after %v: requests = %q", standbyPause, got)
		}
	})
}

// TestStandBy_WhatTheLeaderSaw: a leader that cannot inspect the pods loses the lease, and keeps what it saw while it stands by.
func TestStandBy_WhatTheLeaderSaw(t *testing.T) {
	inCluster(t, func(c *cluster) {
		withPod(c)
		failing := true
		c.intercept("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			return failing, nil, errors.New("no route")
		})
		excursions["by a missing source"](c, func() { c.started("web-1", "app") })()
		c.advance(time.Minute)
		c.expect("it cannot look")
		c.standBy()
		c.mu.Lock()
		failing = false
		c.mu.Unlock()
		c.advance(time.Minute)
		if got := c.kinds(); got != "mixed" {
			t.Errorf("the replica wrote %q", got)
		}
	})
}

// TestBegin_ForgetsDeleted: workloads that were deleted between two terms are forgotten.
func TestBegin_ForgetsDeleted(t *testing.T) {
	inCluster(t, func(c *cluster) {
		stop := adopted(c)
		stop()
		c.remove(live(c, deployment("web", "db")))
		c.lead()
		if len(c.controller.notes) != 0 {
			t.Errorf("got %d notes", len(c.controller.notes))
		}
	})
}

// TestStandBy_EndsBeforeItLeads: StandBy does nothing while Run is running.
func TestStandBy_EndsBeforeItLeads(t *testing.T) {
	inCluster(t, func(c *cluster) {
		withPod(c)
		stop := c.standBy()
		c.set(secret("db", "2"))
		c.advance(time.Minute)
		c.set(secret("db", "1"))
		asked := make(chan struct{})
		c.interceptFirst("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			close(asked)
			<-time.After(time.Second)
			return true, nil, context.Canceled
		})
		<-asked
		stop()
		synctest.Wait()
		c.lead()
		c.advance(time.Hour)
		if got := c.kinds(); got != "verified" {
			t.Errorf("requests of the leader = %q", got)
		}
	})
}

// TestStandBy_OwnRecordInAList: a list shows the replica's own record in a later version of the workload. The record still does
// not reflect what was read after it was decided on.
func TestStandBy_OwnRecordInAList(t *testing.T) {
	inCluster(t, func(c *cluster) {
		withPod(c)
		c.resign()
		edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { // so that the content is recorded again
			delete(d.Annotations, policy.ConfigHashAnnotation)
			delete(d.Annotations, policy.AppliedSourcesAnnotation)
		})
		c.newProcess()
		c.synced()
		c.delayFirst("patch", "deployments", time.Millisecond, c.hold) // its watch breaks
		c.lead()
		c.advance(time.Second)
		c.took()
		read := func(value string) { // live
			c.set(secret("db", value))
			c.mu.Lock()
			defer c.mu.Unlock()
			if err := c.Replay().Set(c.Stored(secret("db", ""))); err != nil {
				t.Fatal(err)
			}
		}
		read("2")
		c.advance(time.Minute)
		c.started("web-1", "app")
		c.advance(time.Minute)
		read("1")
		edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Labels = map[string]string{"x": "y"} })
		c.synced()
		c.advance(time.Hour)
		if got := c.kinds(); !strings.HasPrefix(got, "mixed") {
			t.Errorf("the replica wrote %q", got)
		}
	})
}
