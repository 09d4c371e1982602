// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package configdependency

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/ingest"
	"github.com/configdep/configdep/pkg/ingest/ingesttest"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/render"
)

var update = flag.Bool("update", false, "write the golden files")

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

// cluster is a cluster that an index reads, and what is served of it.
type cluster struct {
	*ingesttest.Cluster
	clock *testingclock.FakeClock
	views *Views
	rest  *REST
}

// now is the time in a cluster, until its clock is set, and defaults are what is in force
// where no annotation says anything.
var (
	now      = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	defaults = policy.Defaults{Mode: policy.Off, Settle: time.Second, MinInterval: 10 * time.Second}
)

// newCluster returns one that has synced at revision 100.
func newCluster(t testing.TB, objects ...ingesttest.Object) *cluster {
	t.Helper()
	c := unsynced(t, objects...)
	c.sync(t)
	return c
}

// unsynced returns one at revision 100 of which nothing has been read.
func unsynced(t testing.TB, objects ...ingesttest.Object) *cluster {
	t.Helper()
	clock := testingclock.NewFakeClock(now)
	views := NewViews(0, nil, nil, clock)
	t.Cleanup(func() { end(views) })
	views.Reset()
	c := &cluster{ingesttest.New(t, clock), clock, views, NewREST(views, nil)}
	c.Version -= uint64(len(objects))
	for _, o := range objects {
		c.Set(o)
	}
	c.start(ingest.Scope{})
	return c
}

// start begins to read the cluster, in the place of what read it before.
func (c *cluster) start(scope ingest.Scope) {
	x := ingest.NewIndex(c.clock, c.views)
	x.SetDefaults(defaults)
	c.Start(x, scope, 7)
}

// sync lists everything, and finds that there is one revision counter.
func (c *cluster) sync(t testing.TB) {
	t.Helper()
	c.List()
	if err := c.Replay().Probe(t.Context(), "pods", c.Version); err != nil {
		t.Fatal(err)
	}
	c.catchUp()
}

// now returns what the index knows.
func (c *cluster) now() (known decide.Evaluator) {
	c.Read(func(e decide.Evaluator) { known = e })
	return known
}

// at returns the progress that the index has made. Some tests change it and tell the views themselves, because no index
// gets there while watches are open: for example, it never again doubts that there is one revision counter.
func (c *cluster) at() dependency.Progress { return c.Index().Progress() }

// set creates or changes an object, which is read at once. All resources are then read up to this revision.
func (c *cluster) set(o ingesttest.Object) {
	c.Set(o)
	c.progress(c.Version)
}

// remove deletes an object, as set does.
func (c *cluster) remove(o ingesttest.Object) {
	c.Delete(o)
	c.progress(c.Version)
}

// progress is a bookmark of all resources.
func (c *cluster) progress(revision uint64) {
	c.Version = revision
	c.Bookmark()
	c.catchUp()
}

// relist lists one resource again, at a revision to which the others have not come.
func (c *cluster) relist(t *testing.T, revision uint64) {
	t.Helper()
	if err := c.Replay().ListOf("namespaces", strconv.FormatUint(revision, 10)); err != nil {
		t.Fatal(err)
	}
	c.catchUp()
}

// rekey does what the server does when the key of the hashes is replaced: it forgets all views, and reads everything
// again, at revision 200. Something happens in between.
func (c *cluster) rekey(meanwhile func()) {
	c.Rekey(9, func() {
		c.views.Reset()
		meanwhile()
		c.Version = 200
	}, func() {})
	c.catchUp()
}

func (c *cluster) catchUp() { c.views.CatchUp(context.Background()) }

// end ends views that have not been run.
func end(views *Views) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	views.Run(ctx)
}

func (c *cluster) evaluate(o ingesttest.Object) *decide.Evaluation {
	known := c.now()
	return known.Evaluate(known.Graph.Workload(keyOf(o)))
}

// render returns the view of a workload at the present time, with a version.
func (c *cluster) render(o ingesttest.Object, revision uint64) *v1alpha1.ConfigDependency {
	e := c.evaluate(o)
	view := render.ConfigDependency(nil, e, e.Decide(c.clock.Now()))
	view.ResourceVersion = strconv.FormatUint(revision, 10)
	return view
}

func keyOf(o ingesttest.Object) dependency.WorkloadKey {
	return dependency.WorkloadKey{Kind: kind.Table(nil).OfObject(o).Name, Namespace: o.GetNamespace(), Name: o.GetName()}
}

// workload returns a workload that reads the given sources, such as Secret/db.
func workload(of dependency.WorkloadKind, namespace, name string, labels map[string]string, sources ...string) ingesttest.Object {
	o := kind.Table(nil).Of(of).New()
	o.SetNamespace(namespace)
	o.SetName(name)
	o.SetUID(types.UID(fmt.Sprintf("uid-%s-%s-%s", of, namespace, name)))
	o.SetCreationTimestamp(metav1.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	o.SetLabels(labels)
	spec := corev1.PodSpec{Containers: []corev1.Container{{Name: "app"}}}
	for _, s := range sources {
		kind, name, _ := strings.Cut(s, "/")
		ref, from := corev1.LocalObjectReference{Name: name}, corev1.EnvFromSource{}
		switch dependency.SourceKind(kind) {
		case dependency.Secret:
			from.SecretRef = &corev1.SecretEnvSource{LocalObjectReference: ref}
		case dependency.ConfigMap:
			from.ConfigMapRef = &corev1.ConfigMapEnvSource{LocalObjectReference: ref}
		default:
			spec.Volumes = append(spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{
				Driver: "secrets-store.csi.k8s.io", VolumeAttributes: map[string]string{"secretProviderClass": name},
			}}})
			continue
		}
		spec.Containers[0].EnvFrom = append(spec.Containers[0].EnvFrom, from)
	}
	if pod, ok := o.(*corev1.Pod); ok {
		pod.Spec = spec
	} else if read, err := kind.Table(nil).Of(of).From(o); err == nil {
		read.Template.Spec = spec
	}
	return o
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

// renderFile reads the objects of a YAML file, and renders the workloads.
func renderFile(t *testing.T, path string, revision uint64) (views []*v1alpha1.ConfigDependency) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var objects []runtime.Object
	for document := range bytes.SplitSeq(raw, []byte("\n---\n")) {
		o, _, err := clientscheme.Codecs.UniversalDeserializer().Decode(document, nil, nil)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		objects = append(objects, o)
	}
	c := unsynced(t)
	if err := c.Replay().List("100", objects...); err != nil { // they keep their versions
		t.Fatalf("%s: %v", path, err)
	}
	for _, o := range objects {
		if kind.Table(nil).OfObject(o) != nil {
			views = append(views, c.render(o.(ingesttest.Object), revision))
		}
	}
	return views
}
