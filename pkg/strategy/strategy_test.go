// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package strategy

import (
	"testing"

	"github.com/configdep/configdep/pkg/policy"
)

// TestOf_EachStrategyHasEffects so that none is known to the policy and does nothing.
func TestOf_EachStrategyHasEffects(t *testing.T) {
	for _, s := range policy.Strategies() {
		if Of(s) == nil {
			t.Errorf("the strategy %s has no effects", s.Name())
		}
	}
	if got, want := len(effects), len(policy.Strategies()); got != want {
		t.Errorf("%d strategies have effects, and the policy knows %d", got, want)
	}
}
