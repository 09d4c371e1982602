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

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/policy"
)

// podOwners are the kinds of workloads that have pods.
var podOwners = []dependency.WorkloadKind{kind.Deployment, kind.CronJob, kind.Job}

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

// The same, with a kind that appears and disappears, with its definition or with the right to read it.
func TestIndexFollowsAKindThatComesAndGoes(t *testing.T) {
	withSeeds(t, 1, func(t *testing.T, r *rand.Rand) {
		t.Helper()
		indexFollowsTheCluster(t, r, Scope{Kinds: append(kind.BuiltIn(), boats())})
	})
}

func indexFollowsTheCluster(t *testing.T, r *rand.Rand, scope Scope) {
	t.Helper()
	x, sink := syncedWithin(t, scope, nil, nil)
	x.batch = 1 + r.Intn(3)
	cluster := map[*stream]map[string]*object{}
	streams := []*stream{deployments, cronJobs, jobs, pods, secrets, configMaps, namespaces}
	for _, s := range streams {
		cluster[s] = map[string]*object{}
	}
	var comes *stream // and goes; nil: none does
	if scope.Kinds != nil {
		comes = scope.workloads(scope.Kinds[len(scope.Kinds)-1], nil)
		streams, cluster[comes] = append(streams, comes), map[string]*object{}
		if x.leave(comes) {
			t.Fatal("the index has synced again")
		}
	}
	read := func(s *stream) bool { return s != comes || x.optional.read[s.name] }
	stored := map[string]*object{} // what there is of the kind that comes and goes
	names := []string{"secret/a", "secret/a*", "configmap/*", "secret/b,configmap/c"}
	version := 100
	change := func(s *stream) *object {
		version++
		name := pick(r, "a", "b", "c", "d")
		source, isSource := s.part.(sourcePart)
		workload, _ := s.part.(workloadPart)
		kind := dependency.WorkloadKind(workload)
		switch {
		case s == namespaces:
			annotations := map[string]string{}
			if r.Intn(2) == 0 {
				annotations[policy.SourcesAnnotation] = pick(r, names...)
			}
			if scope.NamespaceSelector != nil {
				annotations = policy.Dialects(nil).ReadNamespace(annotations, r.Intn(2) == 0)
			}
			return namespaceObject("ns", version, annotations)
		case isSource:
			return sourceObject(dependency.SourceKind(source), name, version)
		case s == pods:
			of := dependency.WorkloadKey{Kind: pick(r, podOwners...), Namespace: "ns", Name: pick(r, "a", "b", "c")}
			p := &dependency.Pod{PodKey: dependency.PodKey{Namespace: "ns", Name: name}, Version: uint64(version), Workload: of, Node: pick(r, "x", "y")}
			return &object{ObjectMeta: objectMeta(name, version), value: &readPod{Pod: p}}
		case r.Intn(5) == 0 && s == jobs:
			o := controlled(name, version)
			o.value = &dependency.Run{
				WorkloadKey: dependency.WorkloadKey{Kind: kind, Namespace: "ns", Name: name}, Of: dependency.WorkloadKey{Kind: "CronJob", Namespace: "ns", Name: name},
			}
			return o
		case r.Intn(5) == 0:
			return controlled(name, version)
		case r.Intn(4) == 0:
			return naming(workloadObject(kind, name, version, subset(r, "a", "b", "c")...), pick(r, names...))
		default:
			return workloadObject(kind, name, version, subset(r, "a", "b", "c")...)
		}
	}
	for step := range 3_000 {
		s := pick(r, streams...)
		in := newStore(x, s)
		what := r.Intn(8)
		switch {
		case !read(s) && what < 2: // it is listed for the first time, or again
			what = 1
		case !read(s): // it is written unseen
			o := change(s)
			stored[o.Name] = o
			must(t, newStore(x, namespaces).Bookmark(fmt.Sprint(version)))
			what = -1
		case s == comes && r.Intn(10) == 0:
			stored, cluster[s] = cluster[s], map[string]*object{}
			if x.leave(s) {
				t.Fatal("the index has synced again")
			}
			what = -1
		}
		if what >= 0 && !read(s) {
			cluster[s] = stored
		}
		switch what {
		case -1:
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
		checkStreams(t, step, x, streams, read)
	}
}

// checkStreams checks that exactly the streams that are read hold back the watermark, and that what is listed late is known
// to be.
func checkStreams(t *testing.T, step int, x *Index, streams []*stream, read func(*stream) bool) {
	t.Helper()
	least := x.progress.Latest
	for _, s := range streams {
		position, held := x.seen.byName[s.name]
		if held && !read(s) {
			t.Fatalf("step %d: %s is not read and holds back the watermark", step, s.name)
		}
		if held {
			least = min(least, position.revision)
		}
	}
	if got := x.Progress().Watermark; got != least {
		t.Fatalf("step %d: watermark = %d, want %d", step, got, least)
	}
}

func checkIndex(t *testing.T, step int, x *Index, sink *recorder, cluster map[*stream]map[string]*object) {
	t.Helper()
	naive := dependency.NewGraph()
	naive.SetUnreadNamespace(x.scope.unreadNamespace())
	for _, o := range cluster[namespaces] {
		naive.SetNamespace(o.Name, o.value.(*namespace).annotations)
	}
	for _, objects := range cluster {
		for _, o := range objects {
			switch {
			case workloadOf(o) != nil:
				naive.SetWorkload(workloadOf(o), patternsOf(naive, workloadOf(o)))
			case sourceOf(o) != nil:
				naive.SetSource(sourceOf(o))
			default:
				switch v := o.value.(type) {
				case *dependency.Run:
					naive.SetRun(v)
				case *readPod:
					naive.SetPod(v.Pod)
				}
			}
		}
	}
	want, got := map[dependency.WorkloadKey]string{}, map[dependency.WorkloadKey]string{}
	naive.EachWorkload(func(w *dependency.Workload) { want[w.WorkloadKey] = view(naive, w) })
	for _, kind := range []dependency.SourceKind{dependency.Secret, dependency.ConfigMap} {
		for _, name := range []string{"a", "b", "c", "d"} {
			key := dependency.SourceKey{Kind: kind, Namespace: "ns", Name: name}
			x.Read(func(known decide.Evaluator) {
				g := known.Graph
				if diff := cmp.Diff(sorted(naive.Users(key)), sorted(g.Users(key))); diff != "" {
					t.Fatalf("step %d: users of %s %s (-want +got):\n%s", step, kind, name, diff)
				}
			})
		}
	}
	x.Read(func(known decide.Evaluator) {
		g := known.Graph
		g.EachWorkload(func(w *dependency.Workload) { got[w.WorkloadKey] = view(g, w) })
		_, sources := g.Size()
		if _, wantSources := naive.Size(); sources != wantSources {
			t.Fatalf("step %d: got %d sources, want %d", step, sources, wantSources)
		}
		if diff := cmp.Diff(podsIn(naive), podsIn(g)); diff != "" {
			t.Fatalf("step %d: pods and runs (-want +got):\n%s", step, diff)
		}
	})
	if !maps.Equal(want, got) {
		t.Fatalf("step %d: graph (-want +got):\n%s", step, cmp.Diff(want, got))
	}
	if !maps.Equal(want, sink.mirror) {
		t.Fatalf("step %d: rendered notifications (-want +got):\n%s", step, cmp.Diff(want, sink.mirror))
	}
}

// podsIn returns the pods and the runs of a graph.
func podsIn(g *dependency.Graph) (out []string) {
	g.EachPod(func(p *dependency.Pod) {
		out = append(out, fmt.Sprint(p.Name, "@", p.Version, " on ", p.Node, " of ", p.Workload))
	})
	g.EachRun(func(r *dependency.Run) { out = append(out, fmt.Sprint(r.WorkloadKey, " of ", r.Of)) })
	return out
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
