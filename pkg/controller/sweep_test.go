// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"strings"
	"testing"
	"time"

	clienttesting "k8s.io/client-go/testing"
)

// With one restart at a time, the next one begins when the last is complete, or has not begun after all; what failed is tried again later. A new leader
// first looks at all workloads, and waits until it has read what the last one has written.
func TestRun_OneAfterTheOther(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.atOnce = 1
		c.newProcess()
		c.synced()
		c.set(secret("db", "1"))
		names := []string{"a", "b", "c"}
		for _, name := range names {
			c.set(deployment(name, "db"))
		}
		c.lead()
		c.advance(time.Minute)
		c.took()
		c.refusing(func(a clienttesting.Action) error {
			if a.(clienttesting.PatchAction).GetName() == "a" {
				return errRefused
			}
			return nil
		})
		c.set(secret("db", "2"))
		c.advance(1100 * time.Millisecond)
		got := c.took()
		for _, name := range names[1:] {
			if !slices.ContainsFunc(got, func(s string) bool { return strings.HasSuffix(s, " rollout "+name) }) {
				t.Errorf("%s is not restarted although it is its turn: %v", name, got)
			}
		}
		if !slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, " rollout a: ") }) {
			t.Errorf("a is not tried: %v", got)
		}
		c.advance(time.Minute)
		c.refusing(nil)
		c.advance(5 * time.Minute)
		if got = c.took(); len(got) < 2 || !strings.HasSuffix(got[len(got)-1], " rollout a") {
			t.Errorf("a is not tried again: %v", got)
		}

		c.resign()
		c.set(secret("db", "3"))
		c.advance(time.Minute)
		c.newProcess()
		c.synced()
		c.lead()
		c.advance(takeOver - time.Millisecond)
		if got = c.took(); len(got) > 0 {
			t.Errorf("a new leader does not wait: %v", got)
		}
		c.advance(time.Second)
		c.expectDone("and goes on", "rollout a", "rollout b", "rollout c")
	})
}
