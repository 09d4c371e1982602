// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package configdependency

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/workload/workloadtest"
	"github.com/configdep/configdep/test/seeds"
)

var update = flag.Bool("update", false, "write the golden files")

// withSeeds runs a test with several seeds (see test/seeds).
func withSeeds(t *testing.T, n int, test func(*testing.T, *rand.Rand)) {
	t.Helper()
	seeds.Each(t, n, func(t *testing.T, seed uint64) { test(t, rand.New(rand.NewSource(int64(seed)))) })
}

func pick[T any](r *rand.Rand, values ...T) T { return values[r.Intn(len(values))] }

// golden compares with a file in testdata.
func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	path = filepath.Join("testdata", path)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (write it with -update, and read it)", err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

// cluster is a graph and what is served of it, in the place of an index.
type cluster struct {
	graph    *dependency.Graph
	digester *dependency.Digester
	clock    *testingclock.FakeClock
	views    *Views
	rest     *REST
	revision uint64
	floor    uint64 // the revision of the first lists
}

// now is the time in a cluster, until its clock is set, and defaults are what is in force
// where no annotation says anything.
var (
	now      = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	defaults = policy.Defaults{Mode: policy.Off, Settle: time.Second, MinInterval: 10 * time.Second}
)

// newCluster returns one that has synced at revision 100, for a test or, with nil, as long
// as the program runs.
func newCluster(t testing.TB, workloads ...*dependency.Workload) *cluster { //nolint:thelper // t may be nil
	c := unsynced(t)
	for _, w := range workloads {
		c.setWorkload(w)
	}
	c.sync(100)
	return c
}

// sync is the end of the first lists, all of which were read at a revision.
func (c *cluster) sync(revision uint64) {
	c.revision, c.floor = revision, revision
	c.views.Synced(c.now(), c.at())
	c.catchUp()
}

// now returns what the views are told.
func (c *cluster) now() policy.Evaluator {
	return policy.Evaluator{Graph: c.graph.Snapshot(), Defaults: defaults}
}

// at is the progress of an index that has seen everything up to the present revision.
func (c *cluster) at() dependency.Progress {
	return dependency.Progress{Watermark: c.revision, Latest: c.revision, Floor: c.floor, OneCounter: true}
}

// progress is a bookmark of all resources.
func (c *cluster) progress(revision uint64) {
	c.revision = revision
	c.views.Progressed(c.at())
	c.catchUp()
}

func unsynced(t testing.TB) *cluster { //nolint:thelper // t may be nil
	clock := testingclock.NewFakeClock(now)
	views := NewViews(0, nil, clock)
	if t != nil {
		t.Helper()
		t.Cleanup(func() { end(views) })
	}
	digester := dependency.NewDigester(bytes.Repeat([]byte{7}, dependency.KeySize))
	views.Reset()
	graph := dependency.NewGraph()
	graph.SetDigester(digester)
	return &cluster{graph: graph, digester: digester, clock: clock, views: views, rest: NewREST(views)}
}

// render returns the view of a workload at the present time, with a version.
func (c *cluster) render(w *dependency.Workload, revision uint64) *v1alpha1.ConfigDependency {
	e := policy.Evaluator{Graph: c.graph, Defaults: defaults}.Evaluate(w)
	o := Render(e, e.Decide(policy.Observed{Now: c.clock.Now()}))
	o.ResourceVersion = strconv.FormatUint(revision, 10)
	return o
}

// changed tells of workloads, as the index does, and renders them.
func (c *cluster) changed(workloads ...dependency.WorkloadKey) {
	c.views.Changed(c.now(), c.at(), dependency.Delta{Workloads: workloads})
	c.catchUp()
}

func (c *cluster) catchUp() { c.views.CatchUp(context.Background()) }

// end ends views that have not been run.
func end(views *Views) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	views.Run(ctx)
}

func (c *cluster) setWorkload(w *dependency.Workload) {
	p := policy.NewPolicy(w.Annotations, nil, defaults)
	c.graph.SetWorkload(w, p.Patterns())
}

func (c *cluster) set(w *dependency.Workload) {
	c.revision++
	c.setWorkload(w)
	c.changed(w.WorkloadKey)
}

func (c *cluster) remove(key dependency.WorkloadKey) {
	c.revision++
	c.graph.DeleteWorkload(key)
	c.changed(key)
}

// workload returns a workload that reads the given sources, such as Secret/db.
func workload(of dependency.WorkloadKind, namespace, name string, labels map[string]string, sources ...string) *dependency.Workload {
	w := &dependency.Workload{
		WorkloadKey: dependency.WorkloadKey{Kind: of, Namespace: namespace, Name: name}, Traits: kind.Of(of).Traits,
		UID:     types.UID(fmt.Sprintf("uid-%s-%s-%s", of, namespace, name)),
		Created: metav1.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		Labels:  labels,
	}
	for _, s := range sources {
		kind, name, _ := strings.Cut(s, "/")
		w.References = append(w.References, dependency.Reference{
			Kind: dependency.SourceKind(kind), Name: name,
			Uses: []dependency.Use{{Type: dependency.EnvFrom, Container: "app"}},
		})
	}
	return w
}

// revisionOf returns the revision in a version: that up to which everything has been seen.
func revisionOf(t testing.TB, version string) uint64 {
	t.Helper()
	return number(t, version) >> 23
}

func number(t testing.TB, version string) uint64 {
	t.Helper()
	v, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func in(namespace string) context.Context {
	return genericapirequest.WithNamespace(context.Background(), namespace)
}

func listNames(t *testing.T, o runtime.Object) []string {
	t.Helper()
	var out []string
	for _, item := range o.(*v1alpha1.ConfigDependencyList).Items {
		out = append(out, item.Namespace+"/"+item.Name)
	}
	return out
}

// load reads the objects of a YAML file into a graph and returns the workloads.
func (c *cluster) load(t *testing.T, path string) []*dependency.Workload {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var workloads []*dependency.Workload
	for document := range bytes.SplitSeq(raw, []byte("\n---\n")) {
		object, _, err := clientscheme.Codecs.UniversalDeserializer().Decode(document, nil, nil)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		switch o := object.(type) {
		case *appsv1.Deployment:
			workloads = append(workloads, workloadtest.Read(o))
		case *batchv1.CronJob:
			workloads = append(workloads, workloadtest.Read(o))
		case *corev1.Pod:
			workloads = append(workloads, workloadtest.Read(o))
		case *corev1.ConfigMap:
			c.graph.SetSource(dependency.FromConfigMap(c.digester, o, policy.ReadSource(o.Annotations)))
		case *corev1.Secret:
			c.graph.SetSource(dependency.FromSecret(c.digester, o, policy.ReadSource(o.Annotations)))
		default:
			t.Fatalf("%s: nothing is known of a %T", path, o)
		}
	}
	for _, w := range workloads {
		c.setWorkload(w)
	}
	return workloads
}
