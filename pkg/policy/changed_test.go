// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
)

// A restart reports which source has changed. Of the sources of a regular expression of which only the sum is known, it reports the
// one that was read last, with the digest that it has where its name is annotated.
func TestEvaluation_Changed(t *testing.T) {
	changed := func(list string, defaults policy.Defaults) []policy.Changed {
		x := newWorld(t, podOf(env(dependency.Secret, "db", "password")),
			secret("db", "password", "1"), secret("app-a", "k", "1"), secret("app-b", "k", "1"), secret("app-c", "k", "1"))
		x.defaults = defaults
		x.defaults.Mode = policy.Off
		x.annotate(policy.ReloadAnnotation, "", secretList, list)
		x.adopt()
		x.set(secret("app-b", "k", "2"))
		return x.evaluate().Changed()
	}
	want := changed("app-b", policy.Defaults{})
	if len(want) != 1 || want[0].Name != "app-b" || want[0].Digest == "" {
		t.Fatalf("changed = %+v, want app-b", want)
	}
	want[0].Containers = nil
	for name, defaults := range map[string]policy.Defaults{"each is known": {}, "their sum is known": {ReloadOnCreate: true}} {
		got := changed("app-.*", defaults)
		for i := range got {
			got[i].Containers = nil
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
