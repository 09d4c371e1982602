// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"slices"
	"testing"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/kind"
)

// Whether a workload is left to the custom resource that it belongs to depends on what that one reads as well: without a Secret that it
// needs, it is not restarted. So all of this is a change for both.
func TestOwnedWorkloads_AreTold(t *testing.T) {
	owned := deployment("web", 6, "db")
	owned.workload.Owner = &dependency.Owner{WorkloadKey: dependency.WorkloadKey{Kind: "Boat", Namespace: "ns", Name: "ark"}}
	for name, tt := range map[string]struct {
		change func(*Index, *stream)
		want   string
	}{
		"a Secret of the owner changes":    {func(x *Index, _ *stream) { x.set(secrets, secret("tls", 120)) }, "changed at 120: boat.ark deployment.web"},
		"a Secret of the owner is deleted": {func(x *Index, _ *stream) { x.remove(secrets, secret("tls", 120)) }, "changed at 120: boat.ark deployment.web"},
		"a Secret of both changes":         {func(x *Index, _ *stream) { x.set(secrets, secret("db", 120)) }, "changed at 120: boat.ark deployment.web"},
		"a Secret of another one changes":  {func(x *Index, _ *stream) { x.set(secrets, secret("other", 120)) }, "changed at 120: deployment.other"},
		"the owner changes":                {func(x *Index, s *stream) { x.set(s, workloadObject("Boat", "ark", 120, "db")) }, "changed at 120: boat.ark deployment.web"},
		"the owner is deleted":             {func(x *Index, s *stream) { x.remove(s, workloadObject("Boat", "ark", 120)) }, "changed at 120: -boat.ark deployment.web"},
		"the workload changes":             {func(x *Index, _ *stream) { x.set(deployments, deployment("web", 120)) }, "changed at 120: deployment.web"},
	} {
		t.Run(name, func(t *testing.T) {
			scope := Scope{Kinds: append(kind.BuiltIn(), boats())}
			boats := scope.workloads(scope.Kinds[len(scope.Kinds)-1], nil)
			x, r := syncedWithin(t, scope, []any{owned, deployment("other", 7, "other")}, []any{secret("db", 5), secret("tls", 5), secret("other", 5)})
			owner := workloadObject("Boat", "ark", 90, "db", "tls")
			owner.workload.Custom = true
			x.replace(boats, []any{owner}, "110")
			r.told()
			tt.change(x, boats)
			if told := r.told(); !slices.Contains(told, tt.want) {
				t.Errorf("notifications = %q, want %s", told, tt.want)
			}
		})
	}
}
