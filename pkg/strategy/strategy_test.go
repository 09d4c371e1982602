// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package strategy

import (
	"testing"

	"github.com/configdep/configdep/pkg/policy"
)

// TestOf_EachStrategyHasEffects, so that no strategy of package policy does nothing.
func TestOf_EachStrategyHasEffects(t *testing.T) {
	all := append(policy.Strategies(), policy.Rerun)
	for _, s := range all {
		if effects[s] == nil {
			t.Errorf("strategy %s has no effects", s.Name())
		}
	}
	if got, want := len(effects), len(all); got != want {
		t.Errorf("%d strategies have effects, want the %d of package policy", got, want)
	}
}
