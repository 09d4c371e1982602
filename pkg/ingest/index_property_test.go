// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"fmt"
	"maps"
	"math/rand"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
)

// After any changes, the graph equals the cluster, and so does a sink that renders only what it is
// told.
func TestIndexFollowsTheClusterThroughAnyChanges(t *testing.T) {
	withSeeds(t, 1, func(t *testing.T, r *rand.Rand) {
		t.Helper()
		indexFollowsTheCluster(t, r, Scope{})
	})
}

// The same, with a namespace that is selected, or not, or does not exist.
func TestIndexFollowsNamespacesThatAreSelected(t *testing.T) {
	withSeeds(t, 1, func(t *testing.T, r *rand.Rand) {
		t.Helper()
		indexFollowsTheCluster(t, r, Scope{NamespaceSelector: labels.Nothing()})
	})
}

func indexFollowsTheCluster(t *testing.T, r *rand.Rand, scope Scope) {
	t.Helper()
	x, sink := syncedWithin(t, scope, nil, nil)
	x.batch = 1 + r.Intn(3)
	cluster := map[*stream]map[string]*object{deployments: {}, jobs: {}, secrets: {}, configMaps: {}, namespaces: {}}
	names := []string{"secret/a", "secret/a*", "configmap/*", "secret/b,configmap/c"}
	version := 100
	change := func(s *stream) *object {
		version++
		name := pick(r, "a", "b", "c", "d")
		switch {
		case s == namespaces:
			annotations := map[string]string{}
			if r.Intn(2) == 0 {
				annotations[policy.SourcesAnnotation] = pick(r, names...)
			}
			if scope.NamespaceSelector != nil {
				annotations = policy.Dialects(nil).ReadNamespace(annotations, nil, r.Intn(2) == 0)
			}
			return namespaceObject("ns", version, annotations)
		case s.sources != "":
			return sourceObject(s.sources, name, version)
		case r.Intn(5) == 0:
			return controlled(s.workloads, name, version)
		case r.Intn(4) == 0:
			return naming(workloadObject(s.workloads, name, version, subset(r, "a", "b", "c")...), pick(r, names...))
		default:
			return workloadObject(s.workloads, name, version, subset(r, "a", "b", "c")...)
		}
	}
	for step := range 3_000 {
		s := pick(r, deployments, jobs, secrets, configMaps, namespaces)
		in := newStore(x, s)
		switch r.Intn(8) {
		case 0:
			o := change(s)
			delete(cluster[s], o.Name)
			must(t, in.Delete(o))
		case 1: // events during a disconnection are seen in the next list
			for range r.Intn(4) {
				if o := change(s); r.Intn(3) == 0 {
					delete(cluster[s], o.Name)
				} else {
					cluster[s][o.Name] = o
				}
			}
			var all []any
			for _, o := range cluster[s] {
				all = append(all, o)
			}
			must(t, in.Replace(all, fmt.Sprint(version)))
		case 2:
			must(t, in.Bookmark(fmt.Sprint(version)))
		default:
			o := change(s)
			cluster[s][o.Name] = o
			must(t, in.Update(o))
		}
		if x.progress.Latest != uint64(version) && step > 0 {
			t.Fatalf("step %d: revision = %d, want %d", step, x.progress.Latest, version)
		}
		checkIndex(t, step, x, sink, cluster)
	}
}

func checkIndex(t *testing.T, step int, x *Index, sink *recorder, cluster map[*stream]map[string]*object) {
	t.Helper()
	naive := dependency.NewGraph()
	naive.SetUnreadNamespace(x.scope.unreadNamespace())
	for _, o := range cluster[namespaces] {
		naive.SetNamespace(o.Name, *o.namespace)
	}
	for _, objects := range cluster {
		for _, o := range objects {
			switch {
			case o.workload != nil:
				naive.SetWorkload(o.workload, patternsOf(naive, o.workload))
			case o.source != nil:
				naive.SetSource(o.source)
			}
		}
	}
	want, got := map[dependency.WorkloadKey]string{}, map[dependency.WorkloadKey]string{}
	naive.EachWorkload(func(w *dependency.Workload) { want[w.WorkloadKey] = view(naive, w) })
	for _, kind := range []dependency.SourceKind{dependency.Secret, dependency.ConfigMap} {
		for _, name := range []string{"a", "b", "c", "d"} {
			key := dependency.SourceKey{Kind: kind, Namespace: "ns", Name: name}
			x.Read(func(known policy.Evaluator) {
				g := known.Graph
				if diff := cmp.Diff(sorted(naive.Users(key)), sorted(g.Users(key))); diff != "" {
					t.Fatalf("step %d: users of %s %s (-want +got):\n%s", step, kind, name, diff)
				}
			})
		}
	}
	x.Read(func(known policy.Evaluator) {
		g := known.Graph
		g.EachWorkload(func(w *dependency.Workload) { got[w.WorkloadKey] = view(g, w) })
		_, sources := g.Size()
		if _, wantSources := naive.Size(); sources != wantSources {
			t.Fatalf("step %d: got %d sources, want %d", step, sources, wantSources)
		}
	})
	if !maps.Equal(want, got) {
		t.Fatalf("step %d: graph (-want +got):\n%s", step, cmp.Diff(want, got))
	}
	if !maps.Equal(want, sink.mirror) {
		t.Fatalf("step %d: rendered notifications (-want +got):\n%s", step, cmp.Diff(want, sink.mirror))
	}
}

func sorted(keys []dependency.WorkloadKey) (out []string) {
	for _, k := range keys {
		out = append(out, k.ViewName())
	}
	slices.Sort(out)
	return out
}

func subset(r *rand.Rand, all ...string) (out []string) {
	for _, s := range all {
		if r.Intn(2) == 0 {
			out = append(out, s)
		}
	}
	return out
}
