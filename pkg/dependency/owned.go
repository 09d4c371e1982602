// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"cmp"
	"reflect"

	"k8s.io/apimachinery/pkg/types"
)

// Owner is a workload of a custom resource that another workload belongs to.
type Owner struct {
	WorkloadKey
	UID types.UID
}

// ownedKey says that a workload belongs to another one.
type ownedKey struct{ owner, owned WorkloadKey }

func compareOwned(a, b *ownedKey) int {
	return cmp.Or(compareWorkloads(&a.owner, &b.owner), compareWorkloads(&a.owned, &b.owned))
}

// relate replaces a workload that may have an owner, or the template of another one. Either may be nil.
func (g *Graph) relate(before, now *Workload) {
	relation := func(of tree[ownedKey, struct{}], to func(*Workload) *WorkloadKey) {
		if before != nil && to(before) != nil {
			if now != nil && to(now) != nil && *to(now) == *to(before) {
				return
			}
			of.delete(ownedKey{*to(before), before.WorkloadKey})
		}
		if now != nil && to(now) != nil {
			of.set(&ownedKey{*to(now), now.WorkloadKey}, struct{}{})
		}
	}
	relation(g.owned, func(w *Workload) *WorkloadKey {
		if w.Owner == nil {
			return nil
		}
		return &w.Owner.WorkloadKey
	})
	relation(g.borrowers, func(w *Workload) *WorkloadKey { return w.TemplateOf })
}

// Owned calls f for the workloads that belong to another one, which need not exist.
func (g *Graph) Owned(owner WorkloadKey, f func(WorkloadKey)) { related(g.owned, owner, f) }

// Borrowers calls f for the workloads whose pods have the template of another one, which need not exist. F must not change the graph.
func (g *Graph) Borrowers(of WorkloadKey, f func(WorkloadKey)) { related(g.borrowers, of, f) }

// Borrow gives a workload what the template consumes that its pods have, as far as that is known. It reports whether that is something
// else than before.
func (g *Graph) Borrow(w *Workload) (changed bool) {
	if w.TemplateOf == nil {
		return false
	}
	var references []Reference
	truncated := false
	if of := g.Workload(*w.TemplateOf); of != nil {
		references, truncated = of.References, of.Truncated
	}
	changed = truncated != w.Truncated || !reflect.DeepEqual(references, w.References)
	w.References, w.Truncated = references, truncated
	return changed
}

// StartAgain notes that the template that the pods of a workload borrow has changed with a version: its controller replaces them after
// that.
func (w *Workload) StartAgain(version string) {
	if v := ParseVersion(version); v > w.StartVersion {
		w.StartVersion, w.StartedBy = v, v
	}
}

func related(t tree[ownedKey, struct{}], owner WorkloadKey, f func(WorkloadKey)) {
	t.from(ownedKey{owner: owner}, func(key *ownedKey, _ struct{}) bool {
		if key.owner != owner {
			return false
		}
		f(key.owned)
		return true
	})
}

// OwnerOf returns the workload that another one belongs to; nil: there is none, or it is being deleted.
func (g *Graph) OwnerOf(w *Workload) *Workload {
	if w.Owner == nil {
		return nil
	}
	owner := g.Workload(w.Owner.WorkloadKey)
	if owner == nil || owner.UID != w.Owner.UID || owner.Terminating {
		return nil
	}
	return owner
}
