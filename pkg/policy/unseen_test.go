// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"testing"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
)

// TestDecide_KeysThatNoContainerSeesAreNotRecorded: environments do not show keys of binaryData.
func TestDecide_KeysThatNoContainerSeesAreNotRecorded(t *testing.T) {
	x := newWorld(t, podOf(envFrom(dependency.ConfigMap, "settings")), configMap("settings", "a", "1"))
	x.adopt()
	with := configMap("settings", "a", "1")
	with.BinaryData = map[string][]byte{"b": {1}}
	x.set(with)
	if d := x.decide(); d.Action != policy.None {
		t.Errorf("a key that containers do not see is added: decision = %+v, want no action", outcomeOf(d))
	}
}
