package controller

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/configdep/configdep/pkg/policy"
)

// standBy lets a replica that has led stand by, until the function that it returns is called.
func (c *cluster) standBy() (stop func()) {
	c.resign()
	ctx, cancel := context.WithCancel(c.context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.controller.StandBy(ctx, c.index)
	}()
	stop = func() {
		cancel()
		<-done
	}
	c.t.Cleanup(stop)
	return stop
}

// TestStandBy: content changes and changes back, and the leader does not see it.
func TestStandBy(t *testing.T) {
	changeBack := func(c *cluster, between func()) {
		c.set(secret("db", "2"))
		c.advance(5 * time.Minute)
		between()
		c.advance(5 * time.Minute)
		c.set(secret("db", "1"))
	}
	thereAndBack := func(c *cluster) { changeBack(c, func() {}) }
	for name, tt := range map[string]struct {
		do   func(*cluster)
		want string // kinds of requests, with the pause in between
	}{
		"no pod has read it": {thereAndBack, "verified"},
		"a pod has read it":  {func(c *cluster) { changeBack(c, func() { c.started("web-1", "app") }) }, "mixed"},
		"pods cannot be listed at first": {func(c *cluster) {
			c.interceptFirst("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("no route") })
			thereAndBack(c)
		}, "verified"},
		"the leader has recorded that it looked": {func(c *cluster) {
			thereAndBack(c)
			c.advance(standbyPause / 2)
			edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Annotations[policy.VerifiedAnnotation] = "2026-01-01T00:00:00Z 1" })
		}, ""},
		"content has changed for good": {func(c *cluster) { c.set(secret("db", "2")) }, ""},
		"the record is removed": {func(c *cluster) {
			edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Annotations = map[string]string{policy.ReloadAnnotation: "auto"} })
		}, ""},
		"the workload has opted out": {func(c *cluster) {
			edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Annotations[policy.ReloadAnnotation] = "off" })
			thereAndBack(c)
		}, ""},
		"a source is missing": {func(c *cluster) { c.remove(live(c, configMap("late", "1"))) }, ""},
		"it has seen a part in a list": {func(c *cluster) {
			c.hold()
			c.set(secret("db", "2"))
			c.synced()
			c.set(secret("db", "3"))
			c.advance(time.Minute)
			c.hold()
			c.set(secret("db", "1"))
			c.synced()
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				withPod(c)
				c.told()
				stop := c.standBy()
				tt.do(c)
				c.advance(standbyPause - time.Millisecond)
				c.expect("it is left to the leader")
				c.advance(time.Hour)
				if got := c.kinds(); got != tt.want {
					t.Errorf("it wrote %q, want %q", got, tt.want)
				}
				c.expectEvents("it tells nothing")
				stop()
				if c.controller.queue != nil {
					t.Error("changes are still queued")
				}
			})
		})
	}
}

// TestStandByEndsBeforeItLeads: nothing that it does goes on beside Run.
func TestStandByEndsBeforeItLeads(t *testing.T) {
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
			t.Errorf("the leader wrote %q", got)
		}
	})
}
