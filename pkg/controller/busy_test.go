// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/policy"
)

// A controller is busy while workloads wait for a worker, and only while it leads.
func TestBusy(t *testing.T) {
	inCluster(t, func(c *cluster) {
		expect := func(what string, want bool) {
			t.Helper()
			if got := c.controller.Busy(); got != want {
				t.Errorf("%s: Busy = %v, want %v", what, got, want)
			}
		}
		expect("it has not led", false)
		c.synced()
		c.set(secret("db", "1"))
		const workloads = 3 // one more than there are workers
		for i := range workloads {
			c.set(deployment(fmt.Sprint("web-", i), "db"))
		}
		stop := c.lead()
		expect("all is recorded", false)
		held := make(chan struct{})
		c.hear = func(string) { <-held }
		c.set(secret("db", "2"))
		c.advance(time.Minute)
		expect("the workers are held up", true)
		close(held)
		synctest.Wait()
		expect("all are restarted", false)
		stop()
		c.set(secret("db", "3"))
		expect("it leads no more", false)
		if c.controller.queue != nil {
			t.Error("the queue is not empty")
		}
		c.took()
	})
}

// The controller forgets its writes when revisions have gone back, but not when lists are read
// again.
func TestSynced_ForgetsWhatRevisionsMeant(t *testing.T) {
	c := New(Config{})
	c.serve(nil)
	key := dependency.WorkloadKey{Kind: kind.Deployment, Namespace: namespace, Name: "web"}
	for i, tt := range []struct {
		restored int
		forgets  bool
	}{{0, false}, {1, true}, {1, false}, {2, true}} {
		c.note(key).written = 7
		c.Synced(policy.Evaluator{Graph: dependency.NewGraph()}, dependency.Progress{Restored: tt.restored})
		if forgot := c.note(key).written == 0; forgot != tt.forgets {
			t.Errorf("list %d, revisions have gone back %d times: forgotten = %v, want %v", i, tt.restored, forgot, tt.forgets)
		}
	}
}
