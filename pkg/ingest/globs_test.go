// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// TellsOfSources implements Sink.
func (*blocked) TellsOfSources() bool { return false }

func (*blocked) Progressed(dependency.Progress) {}

// If a namespace has too many globs, those of the oldest workloads are matched, in whatever order the workloads are read.
// The other workloads are blocked, and report why, until there is room again.
func TestIndex_BlocksTooManyGlobs(t *testing.T) {
	const more = 3
	workload := func(i, version int) *object {
		o := naming(deployment(fmt.Sprintf("w-%03d", i), version), fmt.Sprintf("secret/s-%d-*", i))
		workloadOf(o).Created = metav1.Unix(int64(i/10), 0)
		return o
	}
	var workloads []any
	for i := range dependency.MaxGlobWork + more {
		workloads = append(workloads, workload(i, 10))
	}
	for order, list := range map[string][]any{"as they are": workloads, "the last first": append(append([]any{}, workloads[250:]...), workloads[:250]...)} {
		t.Run(order, func(t *testing.T) {
			sink := &blocked{t: t, names: map[string]bool{}}
			x, _ := newTestIndex(sink, "deployments", "secrets")
			expect := func(when string, from, n int) {
				t.Helper()
				for i := from; i < from+n; i++ {
					if name := fmt.Sprintf("w-%03d", i); !sink.names[name] {
						t.Errorf("%s: %s is not blocked", when, name)
					}
				}
				if len(sink.names) != n {
					t.Errorf("%s: got %d blocked workloads, want %d", when, len(sink.names), n)
				}
			}
			must(t, newStore(x, deployments).Replace(list, "10"), newStore(x, secrets).Replace(nil, "10"))
			expect("at first", dependency.MaxGlobWork, more)
			if want := fmt.Sprintf("may count as %d in total", dependency.MaxGlobWork); !strings.Contains(sink.message, want) || !strings.Contains(sink.message, policy.SourcesAnnotation) {
				t.Errorf("message = %q", sink.message)
			}
			store := newStore(x, deployments)
			must(t, store.Delete(workload(0, 11)))
			expect("one has gone", dependency.MaxGlobWork+1, more-1)
			same := naming(deployment("w-001", 12), "secret/s-2-*")
			workloadOf(same).Created = metav1.Unix(0, 0)
			must(t, store.Update(same))
			expect("two have the same", dependency.MaxGlobWork+2, more-2)
			must(t, newStore(x, secrets).Update(secret("s-502-a", 13)))
			for i := range 2 {
				must(t, store.Add(workload(i, 14+i)))
			}
			expect("both are as they were", dependency.MaxGlobWork, more)
			must(t, store.Update(deployment("w-002", 20)), store.Update(deployment("w-003", 21)), store.Update(deployment("w-004", 22)))
			expect("some need none", 0, 0)
		})
	}
}
