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

// own replaces a workload that may have an owner. Either may be nil.
func (g *Graph) own(before, now *Workload) {
	if before != nil && before.Owner != nil {
		if now != nil && now.Owner != nil && now.Owner.WorkloadKey == before.Owner.WorkloadKey {
			return
		}
		g.owned.delete(ownedKey{before.Owner.WorkloadKey, before.WorkloadKey})
	}
	if now != nil && now.Owner != nil {
		g.owned.set(&ownedKey{now.Owner.WorkloadKey, now.WorkloadKey}, struct{}{})
	}
}

// Owned calls f for the workloads that belong to another one, which need not exist.
func (g *Graph) Owned(owner WorkloadKey, f func(WorkloadKey)) {
	g.owned.from(ownedKey{owner: owner}, func(key *ownedKey, _ struct{}) bool {
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
