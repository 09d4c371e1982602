// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"slices"
	"strings"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
)

// A Deployment that belongs to a custom resource is its operator's. If the custom resource is itself restarted when a source changes,
// the operator does what is needed, and a restart of the Deployment behind its back would be a second one, which it may revert.

// ReasonCoveredByOwner is the reason of a source if a change restarts the custom resource that the workload belongs to, and not the workload.
const ReasonCoveredByOwner = "CoveredByOwner"

// owner is a custom resource that a workload belongs to, and which restarts are its own.
type owner struct {
	*dependency.Workload

	tracked []tracked
}

// ownerOf returns the owner of the workload; nil: there is none that is restarted automatically. Only workloads of Kubernetes itself have
// one, so that custom resources which own each other cannot leave a change to each other.
func (e *Evaluation) ownerOf() *owner {
	w := e.graph.OwnerOf(e.Workload)
	if e.Workload.Custom || w == nil || !w.Custom || !w.Rollable || !w.OptedIn {
		return nil
	}
	if w.Paused || w.Replicas == 0 || w.Truncated {
		return nil
	}
	of := Evaluator{Graph: e.graph, Defaults: e.defaults}.Evaluate(w)
	if missing, _ := of.Missing(); of.Policy.Mode == policy.Off || of.Policy.OnlyReports(w) || len(of.Policy.Problems) > 0 || len(missing) > 0 || of.fieldsBlocked() {
		return nil
	}
	return &owner{w, of.tracked}
}

// covers reports whether a change of what a reference reads restarts the owner.
func (o *owner) covers(r *dependency.Reference) bool {
	if o == nil {
		return false
	}
	return slices.ContainsFunc(o.tracked, func(u tracked) bool {
		if u.counted.Kind != r.Kind || u.counted.Name != r.Name || u.setsOnly() {
			return false
		}
		keys, all := r.Keys()
		covered, whole := u.counted.Keys()
		return whole || !all && !slices.ContainsFunc(keys, func(key string) bool {
			_, found := slices.BinarySearch(covered, key) // both are sorted
			return !found
		})
	})
}

// String names the owner.
func (o *owner) String() string { return string(o.Kind) + " " + o.Name }

// covered says for which sources the owner is restarted; empty: for none.
func (e *Evaluation) covered() string {
	var ids []string
	by := ""
	for i := range e.Sources {
		if s := &e.Sources[i]; s.Reason == ReasonCoveredByOwner {
			ids, by = append(ids, idOf(s.Kind, s.Name)), s.DeclaredBy
		}
	}
	if len(ids) == 0 {
		return ""
	}
	return " A change of " + strings.TrimSpace(enumerate(ids)) + " restarts " + by + ", to which the " + string(e.Workload.Kind) + " belongs."
}
