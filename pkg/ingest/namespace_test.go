// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
)

// between is a sink that calls a function when it is first told of a part of a change.
type between struct {
	recorder
	do func(*dependency.Graph, dependency.Progress)
}

func (b *between) Changed(known decide.Evaluator, at dependency.Progress, delta dependency.Delta) {

	b.recorder.Changed(known, at, delta)
	if do := b.do; do != nil {
		b.do = nil
		do(known.Graph, at)
	}
}

// New annotations of a namespace are applied to its workloads in parts, and other goroutines can use the index in between.
// What comes of it is the same as if the annotations had been applied at once. Until then, the progress does not include the change.
func TestIndex_NamespaceInParts(t *testing.T) {
	const n = 10
	name := func(i int) string { return fmt.Sprint("w-", i) }
	type noted struct {
		OptedIn bool
		Record  string
	}
	mode := map[string]string{policy.ReloadAnnotation: "auto", policy.SourcesAnnotation: "secret/more,secret/s-*"}
	for kind, meanwhile := range map[string]func(*Index){
		"nothing": func(*Index) {},
		"a workload is written": func(x *Index) {
			x.note(deployments.put(x, deployment(name(n-1), 102, "db"), x.arrival(true)))
		},
		"a workload opts out by itself": func(x *Index) {
			o := deployment(name(n-2), 102, "db")
			workloadOf(o).Annotations = map[string]string{policy.ReloadAnnotation: "off"}
			x.note(deployments.put(x, o, x.arrival(true)))
		},
		"a workload is created":                     func(x *Index) { x.note(deployments.put(x, deployment("young", 102, "db"), x.arrival(true))) },
		"a workload is deleted":                     func(x *Index) { x.note(deployments.drop(x, "ns", name(n-1), x.arrival(true))) },
		"a source that annotations name is deleted": func(x *Index) { x.note(secrets.drop(x, "ns", "more", x.arrival(true))) },
		"a source is written":                       func(x *Index) { x.note(secrets.put(x, secret("s-1", 102), x.arrival(true))) },
	} {
		for change, annotations := range map[string][2]map[string]string{"on": {nil, mode}, "off": {mode, nil}} {
			t.Run(change+"/"+kind, func(t *testing.T) {
				run := func(batch int) (out map[string]noted, told map[dependency.WorkloadKey]string, users []string) {
					sink := &between{}
					x, _ := newTestIndex(sink, "deployments", "secrets")
					x.defaults.Mode, x.batch = policy.Off, batch
					var workloads []any
					for i := range n {
						workloads = append(workloads, deployment(name(i), 10, "db"))
					}
					must(t, newStore(x, deployments).Replace(workloads, "100"), newStore(x, secrets).Replace([]any{secret("db", 10), secret("more", 11)}, "100"),
						newStore(x, namespaces).Replace([]any{namespaceObject("ns", 10, annotations[0])}, "100"), newStore(x, deployments).Bookmark("110"), newStore(x, secrets).Bookmark("110"))
					sink.do = func(_ *dependency.Graph, at dependency.Progress) {
						if done := batch > n; (at.Watermark >= 105) != done || at.Latest < 105 {
							t.Errorf("progress = %+v, done = %v", at, done)
						}
						x.change()
						defer x.mu.Unlock()
						meanwhile(x)
					}
					must(t, newStore(x, namespaces).Add(namespaceObject("ns", 105, annotations[1])))
					if sink.do != nil {
						t.Error("the sink was not told of a part of the change")
					}
					x.tellSinks()
					out = map[string]noted{}
					x.graph.EachWorkload(func(w *dependency.Workload) {
						out[w.Name] = noted{w.OptedIn, w.Marks.Hash}
					})
					if got := x.Progress().Watermark; got != 105 {
						t.Errorf("watermark = %d", got)
					}
					return out, sink.mirror, sorted(x.graph.Users(dependency.SourceKey{Kind: dependency.Secret, Namespace: "ns", Name: "more"}))
				}
				whole, wholeTold, wholeUsers := run(n + 1)
				parts, partsTold, partsUsers := run(3)
				if diff := cmp.Diff(whole, parts); diff != "" {
					t.Errorf("annotations (-at once +in parts):\n%s", diff)
				}
				if diff := cmp.Diff(wholeTold, partsTold); diff != "" {
					t.Errorf("notifications (-at once +in parts):\n%s", diff)
				}
				if diff := cmp.Diff(wholeUsers, partsUsers); diff != "" {
					t.Errorf("users of sources that annotations name (-at once +in parts):\n%s", diff)
				}
			})
		}
	}
}

// The index may be reset while the annotations of a namespace are applied to its workloads.
func TestIndex_ResetWhileANamespaceChanges(t *testing.T) {
	sink := &between{}
	x, _ := newTestIndex(sink, "deployments", "secrets")
	x.batch = 1
	must(t, newStore(x, deployments).Replace([]any{deployment("a", 10), deployment("b", 10)}, "100"), newStore(x, secrets).Replace(nil, "100"))
	sink.do = func(*dependency.Graph, dependency.Progress) { x.Reset() }
	must(t, newStore(x, namespaces).Add(namespaceObject("ns", 105, map[string]string{policy.ReloadAnnotation: "auto"})))
	if workloads, _ := x.Size(); workloads != 0 || len(x.graph.Namespace("ns")) != 0 {
		t.Errorf("after the reset: %d workloads, annotations of the namespace %v; want none", workloads, x.graph.Namespace("ns"))
	}
}
