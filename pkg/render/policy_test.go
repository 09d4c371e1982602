// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"slices"
	"testing"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
)

// TestRenderPolicy_NamesEachStrategy so that none is shown as nothing.
func TestRenderPolicy_NamesEachStrategy(t *testing.T) {
	seen := map[v1alpha1.ReloadStrategy]bool{}
	for _, s := range record.Strategies() {
		name := renderPolicy(&policy.Policy{Mode: policy.Auto, Strategy: s}).Strategy
		if !slices.Contains([]v1alpha1.ReloadStrategy{v1alpha1.StrategyAnnotation, v1alpha1.StrategyEnvVar, v1alpha1.StrategyAgent, v1alpha1.StrategyNotify, v1alpha1.StrategyRecreate, v1alpha1.StrategyInPlace}, name) || seen[name] {
			t.Errorf("the strategy %s is shown as %q", s.Name(), name)
		}
		seen[name] = true
	}
}
