// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	clienttesting "k8s.io/client-go/testing"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/metrics"
)

// TestController_OnlyTheLeaderActs, which a metric shows, and a new leader handles earlier changes.
func TestController_OnlyTheLeaderActs(t *testing.T) {
	metrics.Register()
	inCluster(t, func(c *cluster) {
		c.synced()
		c.set(secret("db", "1"))
		c.set(deployment("web", "db"))
		c.advance(time.Hour)
		c.expect("no replica leads")

		stop := c.lead()
		c.expect("it leads", "1h0m0s baseline web")
		if got := leaders(t); got != 1 {
			t.Errorf("during the term: configdep_leader = %v, want 1", got)
		}
		c.set(secret("db", "2"))
		c.advance(500 * time.Millisecond)
		stop()
		if got := leaders(t); got != 0 {
			t.Errorf("after the term: configdep_leader = %v, want 0", got)
		}
		c.advance(time.Hour)
		c.expect("it leads no more")

		stop = c.lead()
		c.expect("it leads again, and the content has settled long ago", "2h0m0.5s rollout web")
		stop()
		c.lead()()
		c.expect("and again")
	})
}

// leaders returns the value of the metric configdep_leader.
func leaders(t *testing.T) float64 {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "configdep_leader" {
			return f.Metric[0].GetGauge().GetValue()
		}
	}
	t.Fatal("there is no metric configdep_leader")
	return 0
}

// TestController_RunReturnsWhenNothingIsUnderWay: the lease is released when Run returns. The controller is busy while workloads wait for a
// worker, and only while it leads.
func TestController_RunReturnsWhenNothingIsUnderWay(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.synced()
		c.set(secret("db", "1"))
		for i := range 10 {
			c.set(deployment(fmt.Sprint("web-", i), "db"))
		}
		stop := c.lead()
		c.advance(time.Minute)
		c.took()
		if c.controller.Busy() {
			t.Error("the controller is busy although all is recorded")
		}

		held, under := make(chan struct{}), make(chan struct{}, 100)
		c.hear = func(string) {
			under <- struct{}{}
			<-held
		}
		c.set(secret("db", "2"))
		c.advance(time.Minute)
		if len(under) != 2 || !c.controller.Busy() {
			t.Errorf("got %d workloads handled at once, busy: %v, want 2 while the others wait", len(under), c.controller.Busy())
		}
		var returned atomic.Bool
		go func() {
			stop()
			returned.Store(true)
		}()
		c.advance(time.Hour)
		if returned.Load() {
			t.Error("Run has returned while workloads are being handled")
		}
		close(held)
		synctest.Wait()
		if !returned.Load() || c.controller.Busy() {
			t.Errorf("Run has returned: %v, busy: %v", returned.Load(), c.controller.Busy())
		}
		if got := c.took(); len(got) != 2 {
			t.Errorf("requests for the other workloads = %v, want none before the next leader", got)
		}
	})
}

// TestController_LosingTheLeadIsNoFailure: a request that is canceled at the end of a term was not refused.
func TestController_LosingTheLeadIsNoFailure(t *testing.T) {
	for name, tc := range map[string]struct {
		before     func(*cluster)
		verb, want string
		events     []string
	}{
		"a restart":   {func(c *cluster) { adopted(c); c.set(secret("db", "2")) }, "patch", "rollout web", nil},
		"an eviction": {aboutToRecreate, "create", "evict web-0", []string{restarted}},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				tc.before(c)
				c.refusing(func(a clienttesting.Action) error {
					if a.GetVerb() != tc.verb {
						return nil
					}
					go c.resign()
					<-time.After(time.Millisecond)
					return context.Canceled
				})
				c.advance(time.Minute)
				c.expectEvents("the lead is lost", tc.events...)
				if log := c.log.String(); strings.Contains(log, "will retry") {
					t.Errorf("log = %s", log)
				}
				c.refusing(nil)
				c.took()
				c.lead()
				c.expectDone("the next leader", tc.want)
			})
		})
	}
}

// The controller forgets its writes when revisions have gone back, but not when lists are read again.
func TestSynced_ForgetsWhatRevisionsMeant(t *testing.T) {
	c := New(Config{})
	c.serve(nil)
	key := dependency.WorkloadKey{Kind: kind.Deployment, Namespace: namespace, Name: "web"}
	for i, tt := range []struct {
		restored int
		forgets  bool
	}{{0, false}, {1, true}, {1, false}, {2, true}} {
		c.note(key).written = 7
		c.Synced(decide.Evaluator{Graph: dependency.NewGraph()}, dependency.Progress{Restored: tt.restored})
		if forgot := c.note(key).written == 0; forgot != tt.forgets {
			t.Errorf("list %d, revisions have gone back %d times: forgotten = %v, want %v", i, tt.restored, forgot, tt.forgets)
		}
	}
}
