// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"cmp"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// ReplicaSet is the part of a ReplicaSet of a Deployment that is kept: the label by which its pods are known.
type ReplicaSet struct {
	Namespace, Name string
	// Deployment is the name of its owner, and Owner the UID of that.
	Deployment string
	Owner      types.UID
	// Number is the number of the rollout that the Deployment's controller gave it last, and Revision is the label of its pods.
	Number   uint64
	Revision string
}

// replicaSets are those with the highest numbers of each Deployment, by their owners. Those of Deployments that are gone stay until they are deleted
// themselves.
type replicaSets struct {
	newest tree[ownerKey, *ReplicaSet]
	names  tree[PodKey, types.UID] // the owners of these, by their own names
}

// ownerKey identifies a Deployment. In another namespace, a ReplicaSet that names its UID is not one of its own.
type ownerKey struct {
	namespace string
	uid       types.UID
}

func newReplicaSets() replicaSets {
	return replicaSets{
		newest: newTree[ownerKey, *ReplicaSet](func(a, b *ownerKey) int {
			return cmp.Or(strings.Compare(string(a.uid), string(b.uid)), strings.Compare(a.namespace, b.namespace))
		}),
		names: newTree[PodKey, types.UID](comparePodKeys),
	}
}

func (r replicaSets) clone() replicaSets {
	return replicaSets{r.newest.clone(), r.names.clone()}
}

// SetReplicaSet notes a ReplicaSet, and reports whether it is the newest of its Deployment and was not known as that.
func (g *Graph) SetReplicaSet(r *ReplicaSet) (changed bool) {
	owner := ownerKey{r.Namespace, r.Owner}
	before := g.replicaSets.newest.get(owner)
	if before != nil && (before.Number > r.Number || *before == *r) {
		return false
	}
	if before != nil {
		g.replicaSets.names.delete(PodKey{before.Namespace, before.Name})
	}
	g.DeleteReplicaSet(r.Namespace, r.Name) // of an earlier Deployment
	next := *r
	g.replicaSets.newest.set(&owner, &next)
	g.replicaSets.names.set(&PodKey{r.Namespace, r.Name}, r.Owner)
	return true
}

// DeleteReplicaSet removes a ReplicaSet and returns it; nil: it was not known. Which one is the newest then is not known until the controller creates
// or writes one.
func (g *Graph) DeleteReplicaSet(namespace, name string) *ReplicaSet {
	key := PodKey{namespace, name}
	owner := ownerKey{namespace, g.replicaSets.names.get(key)}
	if owner.uid == "" {
		return nil
	}
	r := g.replicaSets.newest.get(owner)
	g.replicaSets.names.delete(key)
	g.replicaSets.newest.delete(owner)
	return r
}

// EachReplicaSet calls f for the newest ReplicaSet of each Deployment.
func (g *Graph) EachReplicaSet(f func(*ReplicaSet)) { g.replicaSets.newest.each(f) }

// CurrentRevision returns the label of the pods that have the current template of a workload; empty: it is not known, as while its controller has
// yet to see that template, or to create pods of it because the workload is paused.
func (g *Graph) CurrentRevision(w *Workload) string {
	if w.TemplateRevision != "" || w.Revision == "" || w.Rollout.Reason == ReasonNotObserved || w.Paused && w.Rollout.Phase == RolloutHeld {
		return w.TemplateRevision
	}
	if r := g.newestReplicaSet(w); r != nil && r.Number == ParseVersion(w.Revision) {
		return r.Revision
	}
	return ""
}

// newestReplicaSet returns the newest ReplicaSet of a Deployment; nil: it is not known.
func (g *Graph) newestReplicaSet(w *Workload) *ReplicaSet {
	if w.Revision == "" {
		return nil
	}
	return g.replicaSets.newest.get(ownerKey{w.Namespace, w.UID})
}
