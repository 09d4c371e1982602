// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

func replicaSet(name string, owner types.UID, number uint64) *ReplicaSet {
	return &ReplicaSet{Namespace: "shop", Name: "web-" + name, Deployment: "web", Owner: owner, Number: number, Revision: name}
}

// The pods of a Deployment that have its template are those of the ReplicaSet with its number.
func TestCurrentRevision_OfADeployment(t *testing.T) {
	g := NewGraph()
	d := &Workload{WorkloadKey: shopKey(Deployment, "web"), UID: "d", Status: Status{Revision: "1"}}
	expect := func(what, number, want string) {
		t.Helper()
		if d.Revision = number; g.CurrentRevision(d) != want {
			t.Errorf("%s: %q, want %q", what, g.CurrentRevision(d), want)
		}
	}
	set := func(r *ReplicaSet, changed bool) {
		t.Helper()
		if g.SetReplicaSet(r) != changed {
			t.Errorf("%+v: changed = %v", r, !changed)
		}
	}
	expect("before any is read", "1", "")
	set(replicaSet("a", "d", 1), true)
	set(replicaSet("a", "d", 1), false)
	set(replicaSet("other", "o", 9), true)
	expect("the first", "1", "a")
	set(replicaSet("b", "d", 2), true)
	expect("before its number is on the Deployment", "1", "")
	expect("the second", "2", "b")
	set(replicaSet("a", "d", 1), false) // such as its scale
	expect("a write of an older one", "2", "b")
	set(replicaSet("a", "d", 3), true)
	expect("a rollback", "3", "a")
	expect("no number", "", "")

	d.Rollout.Reason = ReasonNotObserved
	expect("another template", "3", "")
	d.Rollout.Reason = ""
	d.Paused, d.Rollout.Phase = true, RolloutHeld
	expect("another template, while paused", "3", "")
	d.Rollout.Phase = RolloutComplete
	expect("paused", "3", "a")

	snapshot := g.Snapshot()
	if g.DeleteReplicaSet("shop", "web-b") != nil {
		t.Error("an older one is known")
	}
	if r := g.DeleteReplicaSet("shop", "web-a"); r == nil || r.Deployment != "web" {
		t.Errorf("%+v is deleted", r)
	}
	expect("the newest is deleted", "3", "")
	if snapshot.CurrentRevision(d) != "a" {
		t.Error("a snapshot has changed")
	}
	set(replicaSet("b", "d", 4), true)
	expect("a newer one", "4", "b")
}

// A ReplicaSet with the same template and so the same name as one of a Deployment before takes its place, also where the deletions are not seen.
func TestSetReplicaSet_OfADeploymentCreatedAgain(t *testing.T) {
	g := NewGraph()
	g.SetReplicaSet(replicaSet("a", "d1", 7))
	g.SetReplicaSet(replicaSet("a", "d2", 1))
	g.SetReplicaSet(&ReplicaSet{Namespace: "other", Name: "web-a", Owner: "d2", Number: 9, Revision: "x", Deployment: "web"}) // is none of its own
	d := &Workload{WorkloadKey: WorkloadKey{Namespace: "shop"}, UID: "d2", Status: Status{Revision: "1"}}
	if got := g.CurrentRevision(d); got != "a" {
		t.Errorf("revision %q", got)
	}
	n := 0
	g.EachReplicaSet(func(*ReplicaSet) { n++ })
	g.DeleteReplicaSet("other", "web-a")
	if g.DeleteReplicaSet("shop", "web-a"); n != 2 || g.replicaSets.newest.len()+g.replicaSets.names.len() != 0 {
		t.Errorf("%d ReplicaSets, and something is left: %+v", n, g.replicaSets)
	}
}

// Other controllers note the label of the current pods on the workload.
func TestCurrentRevision_NotedOnTheWorkload(t *testing.T) {
	w := &Workload{Status: Status{TemplateRevision: "db-7"}}
	if got := NewGraph().CurrentRevision(w); got != "db-7" {
		t.Errorf("revision %q", got)
	}
}
