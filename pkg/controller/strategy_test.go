// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"strings"
	"testing"
	"time"

	"github.com/configdep/configdep/pkg/policy"
)

// TestReconcile_StrategyThatIsNotAllowed: no pods are evicted, which is reported once, even if pods were being evicted when the
// strategy was disabled. When the strategy is enabled again, the eviction continues.
func TestReconcile_StrategyThatIsNotAllowed(t *testing.T) {
	const told = `Warning ConfigStrategyNotAllowed Deployment/shop/web: Annotation configdep.io/strategy="recreate" is not allowed: ` +
		`configdep is installed without this strategy (--strategies). Automatic restarts are on hold until this is fixed.`
	inCluster(t, func(c *cluster) {
		recreating(c)
		c.resign()
		c.defaults.Strategies = []policy.Strategy{policy.Annotate}
		c.newProcess()
		c.synced()
		c.lead()
		c.replace(true)
		c.set(secret("db", "3"))
		c.advance(10 * time.Minute)
		c.expect("it is switched off")
		c.expectState("it is switched off", policy.Blocked, policy.ReasonStrategyNotAllowed)
		c.expectEvents("it is switched off", told)
		c.resign()
		c.defaults.Strategies = nil
		c.newProcess()
		c.synced()
		c.lead()
		c.advance(time.Minute)
		if got := c.took(); len(got) == 0 || !strings.HasSuffix(got[0], " recreate web") {
			t.Errorf("requests once the strategy is allowed again = %v", got)
		}
	})
}
