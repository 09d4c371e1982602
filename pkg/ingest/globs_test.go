// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
)

// blocked is a sink that records which workloads are blocked.
type blocked struct {
	t       *testing.T
	names   map[string]bool
	message string
}

func (b *blocked) Synced(known decide.Evaluator, at dependency.Progress) {
	g := known.Graph

	var all []dependency.WorkloadKey
	g.EachWorkload(func(w *dependency.Workload) { all = append(all, w.WorkloadKey) })
	b.Changed(known, at, dependency.Delta{Workloads: all})
}

func (b *blocked) Changed(known decide.Evaluator, _ dependency.Progress, delta dependency.Delta) {
	g, workloads := known.Graph, delta.Workloads

	for _, key := range workloads {
		delete(b.names, key.Name)
		if w := g.Workload(key); w != nil {
			e := known.Evaluate(w)
			if d := e.Decide(now); d.State == decide.Blocked {
				b.names[key.Name], b.message = true, d.Message
				if len(e.Globs)+len(e.Policy.Sources) > 0 {
					b.t.Errorf("blocked workload %s still has the sources %v", key.Name, e.Policy.Sources)
				}
			}
		}
	}
}

func (*blocked) Progressed(dependency.Progress) {}

// If a namespace has too many globs, the workloads that have any are blocked, and report why, until there is room again.
func TestIndex_BlocksTooManyGlobs(t *testing.T) {
	workload := func(i, version int) *object {
		return naming(deployment(fmt.Sprintf("w-%03d", i), version), fmt.Sprintf("secret/s-%d-*", i))
	}
	var workloads []any
	for i := range dependency.MaxGlobWork + 1 {
		workloads = append(workloads, workload(i, 10))
	}
	sink := &blocked{t: t, names: map[string]bool{}}
	x, _ := newTestIndex(sink, "deployments", "secrets")
	expect := func(when string, n int) {
		t.Helper()
		if len(sink.names) != n {
			t.Errorf("%s: got %d blocked workloads, want %d", when, len(sink.names), n)
		}
	}
	must(t, newStore(x, deployments).Replace(append(workloads, deployment("none", 10)), "10"), newStore(x, secrets).Replace(nil, "10"))
	expect("at first", dependency.MaxGlobWork+1)
	if want := fmt.Sprintf("may count as %d in total", dependency.MaxGlobWork); !strings.Contains(sink.message, want) || !strings.Contains(sink.message, policy.SourcesAnnotation) {
		t.Errorf("message = %q", sink.message)
	}
	store := newStore(x, deployments)
	must(t, store.Delete(workload(0, 11)))
	expect("one has gone", 0)
	must(t, store.Add(workload(0, 12)))
	expect("it is there again", dependency.MaxGlobWork+1)
	must(t, store.Update(naming(deployment("w-001", 13), "secret/s-2-*")))
	expect("two have the same", 0)
	must(t, newStore(x, secrets).Update(secret("s-500-a", 14)))
	if users := x.graph.Users(dependency.SourceKey{Kind: dependency.Secret, Namespace: "ns", Name: "s-500-a"}); len(users) != 1 {
		t.Errorf("users of a source that a glob names: %v, want one", users)
	}
}
