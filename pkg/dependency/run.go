// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import "k8s.io/apimachinery/pkg/types"

// Run is a run of a workload that is Recurring, such as a Job of a CronJob: its pods are those of the workload.
type Run struct {
	WorkloadKey
	// Of is the workload, and Owner its UID.
	Of    WorkloadKey
	Owner types.UID
}

// runs are the runs by their keys, and by the workloads that they belong to.
type runs struct {
	all tree[WorkloadKey, *Run]
	of  tree[ownedKey, struct{}]
}

func newRuns() runs {
	return runs{newTree[WorkloadKey, *Run](compareWorkloads), newTree[ownedKey, struct{}](compareOwned)}
}

func (r runs) clone() runs { return runs{r.all.clone(), r.of.clone()} }

// SetRun adds a run, or replaces the one of the same name, and reports whether that makes a difference.
func (g *Graph) SetRun(r *Run) (changed bool) {
	if before := g.runs.all.get(r.WorkloadKey); before != nil {
		if *before == *r {
			return false
		}
		g.DeleteRun(r.WorkloadKey)
	}
	next := *r
	g.runs.all.set(&next.WorkloadKey, &next)
	g.runs.of.set(&ownedKey{next.Of, next.WorkloadKey}, struct{}{})
	return true
}

// DeleteRun removes a run and returns it; nil: it was not known.
func (g *Graph) DeleteRun(key WorkloadKey) *Run {
	r := g.runs.all.get(key)
	if r != nil {
		g.runs.all.delete(key)
		g.runs.of.delete(ownedKey{r.Of, r.WorkloadKey})
	}
	return r
}

// EachRun calls f for every run.
func (g *Graph) EachRun(f func(*Run)) { g.runs.all.each(f) }

// Shown returns the workload that is shown for one: that of a run, or itself.
func (g *Graph) Shown(key WorkloadKey) WorkloadKey {
	if r := g.runs.all.get(key); r != nil {
		return r.Of
	}
	return key
}
