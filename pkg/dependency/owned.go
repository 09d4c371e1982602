// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"cmp"

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

// HasOwned reports whether any workload belongs to another one.
func (g *Graph) HasOwned() bool { return g.owned.len() > 0 }

// Owned calls f for the workloads that belong to another one, which need not exist.
func (g *Graph) Owned(owner WorkloadKey, f func(WorkloadKey)) {
	related(g.owned, owner, func(key WorkloadKey) bool {
		f(key)
		return true
	})
}

// Borrowers returns the workloads whose pods have the template of another one, which need not exist, in the order of their names: no more than
// one above MaxBorrowers.
func (g *Graph) Borrowers(of WorkloadKey) (keys []WorkloadKey) {
	related(g.borrowers, of, func(key WorkloadKey) bool {
		keys = append(keys, key)
		return len(keys) <= MaxBorrowers
	})
	return keys
}

// MaxBorrowers is how many workloads may have the template of one other.
const MaxBorrowers = 16

// Borrow gives a workload the sources of the template that its pods have, as far as they are known, and reports whether they have changed.
// Workloads beyond the first MaxBorrowers, by name, are truncated: they get none.
func (g *Graph) Borrow(w *Workload) (changed bool) {
	if w.TemplateOf == nil {
		return false
	}
	before := 0
	for _, key := range g.Borrowers(*w.TemplateOf) {
		if compareWorkloads(&key, &w.WorkloadKey) < 0 {
			before++
		}
	}
	var references []Reference
	truncated := before >= MaxBorrowers
	if of := g.Workload(*w.TemplateOf); of != nil && !truncated {
		references, truncated = of.References, of.Truncated
	}
	changed = truncated != w.Truncated || !sameSlice(references, w.References)
	w.References, w.Truncated = references, truncated
	return changed
}

func sameSlice(a, b []Reference) bool { return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0]) }

func related(t tree[ownedKey, struct{}], owner WorkloadKey, f func(WorkloadKey) bool) {
	t.from(ownedKey{owner: owner}, func(key *ownedKey, _ struct{}) bool {
		if key.owner != owner {
			return false
		}
		return f(key.owned)
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
