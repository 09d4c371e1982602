// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package strategy

import (
	"testing"

	"github.com/configdep/configdep/pkg/record"
)

// TestOf_EachStrategyHasEffects, so that no strategy of package record does nothing.
func TestOf_EachStrategyHasEffects(t *testing.T) {
	all := append(record.Strategies(), record.Rerun)
	for _, s := range all {
		if effects[s] == nil {
			t.Errorf("strategy %s has no effects", s.Name())
		}
	}
	if got, want := len(effects), len(all); got != want {
		t.Errorf("%d strategies have effects, want the %d of package record", got, want)
	}
}
