// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/kind"
)

// A reader sees one state, and the index continues meanwhile.
func TestIndex_ReadsSnapshots(t *testing.T) {
	x, sink := synced(t, []any{deployment("web", 1, "db")}, []any{secret("db", 2)})
	read := x.Read(func(known decide.Evaluator) {
		g := known.Graph
		must(t,
			newStore(x, secrets).Update(secret("db", 101)),
			newStore(x, deployments).Delete(deployment("web", 102)),
			newStore(x, jobs).Bookmark("103"),
		)
		if diff := cmp.Diff([]string{"changed at 101: deployment.web", "changed at 102: -deployment.web", "progressed to 103"}, sink.told()); diff != "" {
			t.Errorf("notifications meanwhile (-want +got):\n%s", diff)
		}
		if err := x.Synced(); err != nil {
			t.Error(err)
		}
		if workloads, _ := x.Size(); workloads != 0 {
			t.Errorf("got %d workloads", workloads)
		}
		key := dependency.WorkloadKey{Kind: kind.Deployment, Namespace: "ns", Name: "web"}
		if w := g.Workload(key); w == nil || !strings.Contains(view(g, w), "Secret/db@2") {
			t.Errorf("the snapshot has changed: %v", w)
		}
		x.Read(func(known decide.Evaluator) {
			now := known.Graph
			if now.Workload(key) != nil {
				t.Error("a new reader does not see the last change")
			}
		})
	})
	if !read {
		t.Error("Read = false")
	}
}

// meddler is a sink that uses the index during notifications, and keeps the graph.
type meddler struct {
	recorder
	index *Index
	graph *dependency.Graph
}

func (m *meddler) Changed(known decide.Evaluator, at dependency.Progress, delta dependency.Delta) {
	g := known.Graph

	m.index.Read(func(known decide.Evaluator) {
		now := known.Graph
		if now != g {
			m.calls = append(m.calls, "told of another state than the present")
		}
	})
	m.graph = g
	m.recorder.Changed(known, at, delta)
}

// While sinks are notified, others may use the index. Sinks may keep the graph that they get.
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
		t.Errorf("notifications (-want +got):\n%s", diff)
	}
	key := dependency.SourceKey{Kind: dependency.Secret, Namespace: "ns", Name: "db"}
	if s := kept.Source(key); s == nil || s.ResourceVersion != "101" {
		t.Errorf("the snapshot that a sink kept has changed: %v", s)
	}
}

// both is a sink that records notifications with their progress.
type both struct {
	recorder
	progress progressOf
}

func (b *both) Changed(known decide.Evaluator, at dependency.Progress, delta dependency.Delta) {

	b.recorder.Changed(known, at, delta)
	b.progress.Changed(known, at, delta)
}

// A list that is read again is applied in parts, and others can use the index in between. The last
// part reports that the whole list has been read, and the first that earlier events may be missing.
func TestIndex_RelistsInParts(t *testing.T) {
	sink := &both{}
	x, _ := newTestIndex(sink, "deployments", "secrets")
	x.batch = 2
	var workloads, before, after []any
	for i := range 6 {
		name := fmt.Sprint("s-", i)
		workloads = append(workloads, deployment(name, 1, name))
		before = append(before, secret(name, 2+i))
		switch i {
		case 0: // the first is deleted
		case 1: // the second is kept
			after = append(after, secret(name, 2+i))
		default:
			after = append(after, secret(name, 110+i))
		}
	}
	must(t, newStore(x, deployments).Replace(workloads, "100"), newStore(x, secrets).Replace(before, "100"), newStore(x, deployments).Bookmark("130"))
	sink.told()
	must(t, newStore(x, secrets).Replace(after, "140"))
	want := []string{"changed at 140: deployment.s-2 deployment.s-3", "changed at 140: deployment.s-4 deployment.s-5", "changed at 140: deployment.s-0"}
	if diff := cmp.Diff(want, sink.told()); diff != "" {
		t.Errorf("notifications (-want +got):\n%s", diff)
	}
	want = []string{"100-140 since 140: changed", "100-140 since 140: changed", "130-140 since 140: changed"}
	if diff := cmp.Diff(want, sink.progress.told()); diff != "" {
		t.Errorf("progress (-want +got):\n%s", diff)
	}
	must(t, newStore(x, secrets).Replace(after, "145"))
	if diff := cmp.Diff([]string{"progressed to 145"}, sink.told()); diff != "" {
		t.Errorf("notifications of the same list again (-want +got):\n%s", diff)
	}
}

// The digester is not replaced during an evaluation of the graph that was read with it.
func TestIndex_RestartsAfterReaders(t *testing.T) {
	x, _ := synced(t, nil, nil)
	done := make(chan struct{})
	x.Read(func(decide.Evaluator) {
		go func() {
			x.Reset()
			close(done)
		}()
		for x.reading.TryRLock() { // until it waits
			x.reading.RUnlock()
			select {
			case <-done:
				t.Fatal("the key was replaced while a reader was running")
			default:
			}
		}
		if err := x.Synced(); err != nil {
			t.Errorf("while the graph is read: error = %v", err)
		}
	})
	<-done
	if x.Synced() == nil || x.Read(func(decide.Evaluator) {}) {
		t.Error("Read = true after the key was replaced")
	}
}

// overdue is a clock with which each turn ends immediately.
type overdue struct{ *clocktesting.FakePassiveClock }

func (overdue) Since(time.Time) time.Duration { return turnTime }

// One object may cost as much as thousands of others, so the index is also released after some time.
func TestIndex_TurnsEndInTime(t *testing.T) {
	sink := &recorder{}
	x := newIndex(overdue{clocktesting.NewFakePassiveClock(now)}, []string{"deployments"}, sink)
	must(t, newStore(x, deployments).Replace(nil, "100"))
	sink.told()
	must(t, newStore(x, deployments).Replace([]any{deployment("a", 101), deployment("b", 102), deployment("c", 103)}, "105"))
	want := []string{"changed at 105: deployment.a", "changed at 105: deployment.b", "changed at 105: deployment.c", "progressed to 105"}
	if diff := cmp.Diff(want, sink.told()); diff != "" {
		t.Errorf("notifications (-want +got):\n%s", diff)
	}
}
