// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/policy"
)

// recorder is a sink that records its notifications.
type recorder struct {
	calls  []string
	mirror map[dependency.WorkloadKey]string
}

func (r *recorder) Synced(known decide.Evaluator, at dependency.Progress) {
	g := known.Graph

	workloads, sources := g.Size()
	r.calls = append(r.calls, fmt.Sprintf("synced at %d with %d workloads and %d sources", at.Latest, workloads, sources))
	r.mirror = map[dependency.WorkloadKey]string{}
	g.EachWorkload(func(w *dependency.Workload) { r.mirror[w.WorkloadKey] = view(g, w) })
}

func (r *recorder) Changed(known decide.Evaluator, at dependency.Progress, delta dependency.Delta) {
	g, workloads := known.Graph, delta.Workloads

	var names []string
	for _, key := range workloads {
		w := g.Workload(key)
		if w == nil {
			delete(r.mirror, key)
			names = append(names, "-"+key.ViewName())
			continue
		}
		if r.mirror != nil {
			r.mirror[key] = view(g, w)
		}
		names = append(names, key.ViewName())
	}
	slices.Sort(names)
	r.calls = append(r.calls, fmt.Sprintf("changed at %d: %s", at.Latest, strings.Join(names, " ")))
}

func (r *recorder) Progressed(at dependency.Progress) {
	r.calls = append(r.calls, fmt.Sprintf("progressed to %d", at.Latest))
}

// told returns the notifications since the last call.
func (r *recorder) told() []string {
	out := r.calls
	r.calls = nil
	return out
}

// view is how a sink shows a workload: its version, the versions of its sources, including those
// that annotations name, its pods if it has sources, and the annotations of its namespace.
func view(g *dependency.Graph, w *dependency.Workload) string {
	var b strings.Builder
	fmt.Fprint(&b, w.WorkloadKey, "@", w.ResourceVersion, " ", g.Namespace(w.Namespace))
	patterns := patternsOf(g, w)
	for _, p := range patterns.Sources {
		if p.Glob() {
			m := g.Matched(w.Namespace, p, patterns.Exclude)
			fmt.Fprint(&b, " ", p, " ", m.Count, m.LastChangeTime())
			for _, name := range m.Names() {
				fmt.Fprint(&b, " ", name, "@", g.Source(dependency.SourceKey{Kind: p.Kind, Namespace: w.Namespace, Name: name}).ResourceVersion)
			}
		}
	}
	for _, r := range g.References(w, patterns.Sources) {
		fmt.Fprint(&b, " ", r.Kind, "/", r.Name)
		if s := g.Source(dependency.SourceKey{Kind: r.Kind, Namespace: w.Namespace, Name: r.Name}); s != nil {
			fmt.Fprint(&b, "@", s.ResourceVersion)
		}
	}
	if g.Judges(w) {
		g.PodsOf(w, func(p *dependency.Pod) bool {
			fmt.Fprint(&b, " ", p.Name, " on ", p.Node)
			return true
		})
	}
	return b.String()
}

func patternsOf(g *dependency.Graph, w *dependency.Workload) dependency.Patterns {
	p := policy.NewPolicy(policy.Annotated{Workload: w.Annotations, Namespace: g.Namespace(w.Namespace)}, policy.Defaults{Mode: policy.Auto})
	return p.Patterns()
}

// newTestIndex returns an index that waits for some resources.
func newTestIndex(sink Sink, resources ...string) (*Index, *testingclock.FakePassiveClock) {
	clock := testingclock.NewFakePassiveClock(now)
	x := newIndex(clock, resources, sink)
	x.graph.SetDigester(testDigester())
	return x, clock
}

func objectMeta(name string, version int) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "ns", Name: name, ResourceVersion: fmt.Sprint(version)}
}

// workloadObject returns a reduced workload that reads Secrets.
func workloadObject(of dependency.WorkloadKind, name string, version int, secrets ...string) *object {
	o := &object{ObjectMeta: objectMeta(name, version), value: &dependency.Workload{
		WorkloadKey:     dependency.WorkloadKey{Kind: of, Namespace: "ns", Name: name},
		ResourceVersion: fmt.Sprint(version),
		Traits:          traitsOf(of),
	}}
	for _, s := range secrets {
		workloadOf(o).References = append(workloadOf(o).References, dependency.Reference{Kind: dependency.Secret, Name: s})
	}
	return o
}

func traitsOf(of dependency.WorkloadKind) dependency.Traits {
	if k := kind.Table(nil).Of(of); k != nil {
		return k.Traits
	}
	return trains.Traits
}

func deployment(name string, version int, secrets ...string) *object {
	return workloadObject(kind.Deployment, name, version, secrets...)
}

func sourceObject(kind dependency.SourceKind, name string, version int) *object {
	return &object{ObjectMeta: objectMeta(name, version), value: &dependency.Source{
		SourceKey:       dependency.SourceKey{Kind: kind, Namespace: "ns", Name: name},
		ResourceVersion: fmt.Sprint(version),
	}}
}

func secret(name string, version int) *object { return sourceObject(dependency.Secret, name, version) }

// naming returns a workload whose annotation names sources.
func naming(o *object, sources string) *object {
	workloadOf(o).Annotations = map[string]string{policy.ReloadAnnotation: "auto", policy.SourcesAnnotation: sources}
	return o
}

// namespaceObject returns a reduced namespace.
func namespaceObject(name string, version int, annotations map[string]string) *object {
	return &object{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: fmt.Sprint(version)}, value: &namespace{annotations: annotations}}
}

// controlled returns a workload that is not shown because it has a controller.
func controlled(name string, version int) *object {
	return &object{ObjectMeta: objectMeta(name, version)}
}

func workloadOf(o *object) *dependency.Workload {
	w, _ := o.value.(*dependency.Workload)
	return w
}

func sourceOf(o *object) *dependency.Source {
	s, _ := o.value.(*dependency.Source)
	return s
}

func newStore(x *Index, s *stream) *store { return &store{x, s, make(chan struct{})} }

func must(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err) // a reflector would log the error with the object
		}
	}
}

// synced returns an index that has synced at revision 100 with the given workloads and
// Secrets.
func synced(t *testing.T, workloads, sources []any) (*Index, *recorder) {
	t.Helper()
	return syncedWithin(t, Scope{}, workloads, sources)
}

// syncedWithin is synced for an index with a scope, which does not say what is awaited.
func syncedWithin(t *testing.T, scope Scope, workloads, sources []any) (*Index, *recorder) {
	t.Helper()
	r := &recorder{}
	x, _ := newTestIndex(r, "deployments", "secrets", "jobs")
	x.scope = scope
	x.Reset()
	must(t,
		newStore(x, deployments).Replace(workloads, "100"),
		newStore(x, secrets).Replace(sources, "90"),
		newStore(x, jobs).Replace(nil, "80"),
	)
	if told := r.told(); len(told) != 1 || !strings.HasPrefix(told[0], "synced at 100") {
		t.Fatalf("notifications = %q", told)
	}
	return x, r
}
