package ingest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/configdep/configdep/pkg/dependency"
)

// Who reads sees one state, and keeps nobody from going on.
func TestIndex_ReadsSnapshots(t *testing.T) {
	x, sink := synced(t, []any{deployment("web", 1, "db")}, []any{secret("db", 2)})
	read := x.Read(func(g *dependency.Graph) {
		must(t,
			newStore(x, secrets).Update(secret("db", 101)),
			newStore(x, deployments).Delete(deployment("web", 102)),
			newStore(x, jobs).Bookmark("103"),
		)
		if diff := cmp.Diff([]string{"changed at 101: deployment.web", "changed at 102: -deployment.web", "progressed to 103"}, sink.told()); diff != "" {
			t.Errorf("told meanwhile (-want +got):\n%s", diff)
		}
		if err := x.Synced(); err != nil {
			t.Error(err)
		}
		if workloads, _ := x.Size(); workloads != 0 {
			t.Errorf("there are %d workloads", workloads)
		}
		key := dependency.WorkloadKey{Kind: dependency.Deployment, Namespace: "ns", Name: "web"}
		if w := g.Workload(key); w == nil || !strings.Contains(view(g, w), "Secret/db@2") {
			t.Errorf("what is read has changed: %v", w)
		}
		x.Read(func(now *dependency.Graph) {
			if now.Workload(key) != nil {
				t.Error("who reads now does not see the last change")
			}
		})
	})
	if !read {
		t.Error("nothing was read")
	}
}

// meddler is a sink that uses the index when it is told something, and keeps the graph.
type meddler struct {
	recorder
	index *Index
	graph *dependency.Graph
}

func (m *meddler) Changed(g *dependency.Graph, at dependency.Progress, workloads []dependency.WorkloadKey) {
	m.index.Read(func(now *dependency.Graph) {
		if now != g {
			m.calls = append(m.calls, "told of another state than the present")
		}
	})
	m.graph = g
	m.recorder.Changed(g, at, workloads)
}

// Sinks are told while others may have the index, and may keep what they are told.
func TestIndex_TellsSinksOfSnapshots(t *testing.T) {
	m := &meddler{}
	x, _ := newTestIndex(m, "deployments", "secrets")
	m.index = x
	must(t, newStore(x, deployments).Replace([]any{deployment("web", 1, "db")}, "100"), newStore(x, secrets).Replace(nil, "100"))
	must(t, newStore(x, secrets).Add(secret("db", 101)))
	kept := m.graph
	must(t, newStore(x, secrets).Update(secret("db", 102)))
	want := []string{"synced at 100 with 1 workloads and 0 sources", "changed at 101: deployment.web", "changed at 102: deployment.web"}
	if diff := cmp.Diff(want, m.told()); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
	key := dependency.SourceKey{Kind: dependency.Secret, Namespace: "ns", Name: "db"}
	if s := kept.Source(key); s == nil || s.ResourceVersion != "101" {
		t.Errorf("what a sink has kept has changed: %v", s)
	}
}

// A list that is read again is applied a part at a time, and others have the index in between.
// That all of it has been seen is said with the last part, and that something before may be missing
// with the first.
func TestIndex_RelistsInParts(t *testing.T) {
	sink := &progressOf{}
	x, _ := newTestIndex(sink, "deployments", "secrets")
	x.batch = 2
	var workloads, before, after []any
	for i := range 5 {
		name := fmt.Sprint("s-", i)
		workloads = append(workloads, deployment(name, 1, name))
		before = append(before, secret(name, 2+i))
		if i > 0 { // the first goes
			after = append(after, secret(name, 110+i))
		}
	}
	must(t, newStore(x, deployments).Replace(workloads, "100"), newStore(x, secrets).Replace(before, "100"), newStore(x, deployments).Bookmark("130"))
	sink.told()
	must(t, newStore(x, secrets).Replace(after, "120"))
	want := []string{"100-130 since 120: changed", "100-130 since 120: changed", "120-130 since 120: changed"}
	if diff := cmp.Diff(want, sink.told()); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
	must(t, newStore(x, secrets).Replace(after, "125"))
	if diff := cmp.Diff([]string{"125-130 since 125: progressed"}, sink.told()); diff != "" {
		t.Errorf("of the same again (-want +got):\n%s", diff)
	}
}

// The digester is not replaced while the graph is evaluated that was read with it.
func TestIndex_RestartsAfterReaders(t *testing.T) {
	for name, restart := range map[string]func(*Index){"reset": (*Index).Reset, "rekey": (*Index).Rekey} {
		t.Run(name, func(t *testing.T) {
			x, _ := synced(t, nil, nil)
			done := make(chan struct{})
			x.Read(func(*dependency.Graph) {
				go func() {
					restart(x)
					close(done)
				}()
				for x.reading.TryRLock() { // until it waits
					x.reading.RUnlock()
					select {
					case <-done:
						t.Fatal("it has not waited")
					default:
					}
				}
				if err := x.Synced(); err != nil {
					t.Errorf("while the graph is read: %v", err)
				}
			})
			<-done
			if x.Synced() == nil || x.Read(func(*dependency.Graph) {}) {
				t.Error("the graph can be read as if nothing had happened")
			}
		})
	}
}
