// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	testingclock "k8s.io/utils/clock/testing"

	"go.uber.org/goleak"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/kind"
)

// Nothing that this package starts may outlive its context.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The tests show something of their own, which needs nothing but the seams: for each workload a ConfigMap
// with the names of its sources, which is "early" until the time in an annotation and then "late".

const until = "until"

type renderer struct{}

func (renderer) Concerned(_ decide.Evaluator, change dependency.Delta) []dependency.WorkloadKey {
	return change.Workloads
}

func (renderer) Each(now decide.Evaluator, f func(dependency.WorkloadKey)) {
	now.Graph.EachWorkload(func(w *dependency.Workload) { f(w.WorkloadKey) })
}

func (renderer) Name(w dependency.WorkloadKey) types.NamespacedName {
	return types.NamespacedName{Namespace: w.Namespace, Name: w.Name}
}

func (renderer) Render(now decide.Evaluator, key dependency.WorkloadKey, at time.Time) (r Rendered[corev1.ConfigMap]) {
	w := now.Graph.Workload(key)
	if w == nil {
		return r
	}
	o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name, UID: w.UID, Labels: w.Labels}, Data: map[string]string{}}
	for _, r := range w.References {
		o.Data["sources"] += r.Name
	}
	o.Data["state"] = "always"
	if late, err := time.Parse(time.RFC3339, w.Annotations[until]); err == nil {
		o.Data["state"], r.Timed = "late", true
		if at.Before(late) {
			o.Data["state"], r.Next = "early", late
		}
	}
	r.Object = o
	return r
}

func (renderer) Alike(before, now decide.Evaluator, key dependency.WorkloadKey) bool {
	a, b := before.Graph.Workload(key), now.Graph.Workload(key)
	return a != nil && b != nil && a.UID == b.UID && maps.Equal(a.Labels, b.Labels)
}

func (renderer) Same(o, before *corev1.ConfigMap) bool { return maps.Equal(o.Data, before.Data) }
func (renderer) State(o *corev1.ConfigMap) string      { return o.Data["state"] }

func (renderer) Share(o, before *corev1.ConfigMap) {
	if maps.Equal(o.Labels, before.Labels) {
		o.Labels = before.Labels
	}
}

func (renderer) Size(o, _ *corev1.ConfigMap) int { return len(o.Data["sources"]) }

var resource = Resource[corev1.ConfigMap]{
	Singular:   "thing",
	ShortNames: []string{"th"},
	Categories: []string{"things"},
	NewList: func(meta metav1.ListMeta, items []corev1.ConfigMap) runtime.Object {
		return &corev1.ConfigMapList{ListMeta: meta, Items: items}
	},
	Columns: []metav1.TableColumnDefinition{{Name: "Name", Type: "string"}, {Name: "Age", Type: "string"}},
	Row: func(o *corev1.ConfigMap, now time.Time) []any {
		return []any{o.Name, now.Sub(o.CreationTimestamp.Time)}
	},
	Field: func(o *corev1.ConfigMap, field string) func(string) bool {
		switch field {
		case metav1.ObjectNameField:
			return func(value string) bool { return o.Name == value }
		case "state":
			return func(value string) bool { return o.Data["state"] == value }
		default:
			return nil
		}
	},
	Own: func(field string) bool { return field != "state" },
}

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// things is a graph and what is served of it, in the place of an index.
type things struct {
	graph    *dependency.Graph
	clock    *testingclock.FakeClock
	view     *View[dependency.WorkloadKey, corev1.ConfigMap, *corev1.ConfigMap]
	rest     *REST[dependency.WorkloadKey, corev1.ConfigMap, *corev1.ConfigMap]
	revision uint64
	floor    uint64 // the revision of the first lists
	current  uint64 // see dependency.Progress
	asked    time.Time
}

func unsynced(t *testing.T) *things {
	t.Helper()
	c := &things{graph: dependency.NewGraph(), clock: testingclock.NewFakeClock(now)}
	c.view = New(Config[dependency.WorkloadKey, corev1.ConfigMap]{
		Resource: schema.GroupResource{Resource: "things"}, Renderer: renderer{}, Clock: c.clock,
	})
	c.rest = NewREST(c.view, &resource)
	t.Cleanup(func() { c.view.Run(t.Context()) }) // which is done by then
	return c
}

// synced returns one that has synced at revision 100.
func synced(t *testing.T, workloads ...*dependency.Workload) *things {
	t.Helper()
	c := unsynced(t)
	for _, w := range workloads {
		c.graph.SetWorkload(w, dependency.Patterns{})
	}
	c.sync(100)
	return c
}

func (c *things) sync(revision uint64) {
	c.revision, c.floor = revision, revision
	c.view.Synced(c.now(), c.at())
	c.catchUp()
}

func (c *things) catchUp() { c.view.CatchUp(context.Background()) }

// now returns what the view is told.
func (c *things) now() decide.Evaluator { return decide.Evaluator{Graph: c.graph.Snapshot()} }

// at is the progress of an index that has seen everything up to the present revision.
func (c *things) at() dependency.Progress {
	return dependency.Progress{Watermark: c.revision, Latest: c.revision, Floor: c.floor, Current: c.current, Asked: c.asked, OneCounter: true}
}

// tell tells of workloads, and renders nothing yet.
func (c *things) tell(workloads ...*dependency.Workload) {
	c.revision++
	keys := make([]dependency.WorkloadKey, len(workloads))
	for i, w := range workloads {
		c.graph.SetWorkload(w, dependency.Patterns{})
		keys[i] = w.WorkloadKey
	}
	c.view.Changed(c.now(), c.at(), dependency.Delta{Workloads: keys})
}

// gone tells that a workload has gone.
func (c *things) gone(key dependency.WorkloadKey) {
	c.revision++
	c.graph.DeleteWorkload(key)
	c.view.Changed(c.now(), c.at(), dependency.Delta{Workloads: []dependency.WorkloadKey{key}})
}

func (c *things) progress(revision uint64) {
	c.revision = revision
	c.view.Progressed(c.at())
	c.catchUp()
}

// states returns the number of objects by state, of states that there are.
func (c *things) states() map[string]int {
	states := c.view.States()
	maps.DeleteFunc(states, func(_ string, n int) bool { return n == 0 })
	return states
}

func keyOf(name string) dependency.WorkloadKey {
	return dependency.WorkloadKey{Kind: kind.Pod, Namespace: "ns", Name: name}
}

// workload returns one that reads the given Secrets.
func workload(name string, labels map[string]string, secrets ...string) *dependency.Workload {
	w := &dependency.Workload{WorkloadKey: keyOf(name), Traits: kind.Table(nil).Of(kind.Pod).Traits, UID: types.UID("uid-" + name), Labels: labels}
	for _, s := range secrets {
		w.References = append(w.References, dependency.Reference{
			Kind: dependency.Secret, Name: s, Uses: []dependency.Use{{Type: dependency.EnvFrom, Container: "app"}},
		})
	}
	return w
}

// waiting returns one that is early for some time.
func waiting(name string, d time.Duration) *dependency.Workload {
	w := workload(name, nil)
	w.Annotations = map[string]string{until: now.Add(d).Format(time.RFC3339)}
	return w
}

func in(namespace string) context.Context {
	return genericapirequest.WithNamespace(context.Background(), namespace)
}

func (c *things) list(t *testing.T, options *metainternalversion.ListOptions) *corev1.ConfigMapList {
	t.Helper()
	list, err := c.rest.List(in(""), options)
	if err != nil {
		t.Fatal(err)
	}
	return list.(*corev1.ConfigMapList)
}

// elsewhere returns the version of a replica that has seen everything up to a revision.
func elsewhere(t *testing.T, revision uint64) *metainternalversion.ListOptions {
	t.Helper()
	other := synced(t)
	other.progress(revision)
	return &metainternalversion.ListOptions{ResourceVersion: other.list(t, nil).ResourceVersion}
}

// revisionOf returns the revision in a version: that up to which everything has been seen.
func revisionOf(t *testing.T, version string) uint64 {
	t.Helper()
	v, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v >> 23
}

// watching is a watch that a test reads, in a bubble of synctest.
type watching struct {
	t *testing.T
	watch.Interface
}

func (c *things) watch(t *testing.T, options *metainternalversion.ListOptions) *watching {
	t.Helper()
	w, err := c.rest.Watch(in(""), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	return &watching{t, w}
}

// expect fails unless just these events have come: TYPE NAME@REVISION [SOURCES].
func (w *watching) expect(why string, want ...string) {
	w.t.Helper()
	var got []string
	for synctest.Wait(); ; synctest.Wait() {
		select {
		case e, open := <-w.ResultChan():
			if !open {
				w.t.Fatalf("%s: the watch has ended after %v", why, got)
			}
			o := e.Object
			if shared, ok := o.(runtime.CacheableObject); ok {
				o = shared.GetObject()
			}
			c := o.(*corev1.ConfigMap)
			got = append(got, strings.TrimSpace(fmt.Sprintf("%s %s@%d %s", e.Type, c.Name, revisionOf(w.t, c.ResourceVersion), c.Data["sources"])))
			continue
		default:
		}
		break
	}
	if diff := cmp.Diff(want, got); diff != "" {
		w.t.Fatalf("%s: events (-want +got):\n%s", why, diff)
	}
}

type object = corev1.ConfigMap

// taker takes steps of the view of the tests.
type taker = taking[dependency.WorkloadKey, corev1.ConfigMap, *corev1.ConfigMap]
