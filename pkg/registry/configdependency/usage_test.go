// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package configdependency

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/registry/view"
)

// A source that a field names has the path of the field, and no mount.
func TestRenderSource_ByObject(t *testing.T) {
	references, _ := dependency.References([]dependency.Named{{Kind: dependency.Secret, Name: "db", Key: "password", Optional: true, Path: ".spec.db.secretRef"}})
	usages, keys := view.Budget(maxUsageBytes), view.Budget(maxKeyBytes)
	got := renderSource(&policy.Source{Reference: &references[0]}, &usages, &keys)
	want := []v1alpha1.Usage{{Type: v1alpha1.UsageObject, Path: ".spec.db.secretRef", Keys: []string{"password"}, Optional: true}}
	if diff := cmp.Diff(want, got.Usages); diff != "" {
		t.Errorf("usages (-want +got):\n%s", diff)
	}
}
