// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/kind"
)

// Whether a workload is left to the custom resource that it belongs to depends on what that one reads as well: without a Secret that it
// needs, it is not restarted. So all of this is a change for both.
func TestOwnedWorkloads_AreTold(t *testing.T) {
	owned := deployment("web", 6, "db")
	workloadOf(owned).Owner = &dependency.Owner{WorkloadKey: dependency.WorkloadKey{Kind: "Boat", Namespace: "ns", Name: "ark"}}
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
			workloadOf(owner).Custom = true
			x.replace(boats, []any{owner}, "110")
			r.told()
			tt.change(x, boats)
			if told := r.told(); !slices.Contains(told, tt.want) {
				t.Errorf("notifications = %q, want %s", told, tt.want)
			}
		})
	}
}

// More workloads name the pod template of another one than have its sources. Those that have them, by their names, are told of each change of
// the template, in whatever order they came, and others take the place of those that go.
func TestBorrowers_InAnyOrder(t *testing.T) {
	scope := Scope{Kinds: append(kind.BuiltIn(), boats())}
	boats := scope.workloads(scope.Kinds[len(scope.Kinds)-1], nil)
	x, _ := syncedWithin(t, scope, []any{deployment("web", 6, "old")}, nil)
	x.replace(boats, nil, "110")
	lender := dependency.WorkloadKey{Kind: kind.Deployment, Namespace: "ns", Name: "web"}
	boat := func(i, version int) *object {
		o := workloadObject("Boat", fmt.Sprintf("b%02d", i), version)
		workloadOf(o).Custom, workloadOf(o).Borrows, workloadOf(o).TemplateOf = true, true, &lender
		return o
	}
	check := func(when, reads string, first int) {
		t.Helper()
		for i := range dependency.MaxBorrowers + 2 {
			w := x.graph.Workload(workloadOf(boat(i, 0)).WorkloadKey)
			if w == nil {
				continue
			}
			has := len(w.References) == 1 && w.References[0].Name == reads
			if want := i >= first && i < first+dependency.MaxBorrowers; has != want || w.Truncated == want {
				t.Errorf("%s: boat %d has the sources: %v (%v), truncated: %v", when, i, has, w.References, w.Truncated)
			}
		}
	}
	for i := dependency.MaxBorrowers + 1; i >= 0; i-- {
		x.set(boats, boat(i, 120))
	}
	check("they came in the order against that of their names", "old", 0)
	x.set(deployments, deployment("web", 130, "new"))
	check("the template has changed", "new", 0)
	x.remove(boats, boat(0, 140))
	check("the first one is gone", "new", 1)
	elsewhere := boat(1, 150)
	workloadOf(elsewhere).TemplateOf = &dependency.WorkloadKey{Kind: kind.Deployment, Namespace: "ns", Name: "other"}
	x.set(boats, elsewhere)
	if w := x.graph.Workload(workloadOf(boat(dependency.MaxBorrowers+1, 0)).WorkloadKey); w.Truncated || len(w.References) != 1 {
		t.Errorf("the last one does not take the place of one that has another template now: %v", w.References)
	}
}
