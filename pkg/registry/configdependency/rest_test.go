// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package configdependency

import (
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/ingest/ingesttest"
	"github.com/configdep/configdep/pkg/kind"
)

func is[T any](storage any) bool { _, ok := storage.(T); return ok }

// Every method set that the installer of the generic API server knows becomes a verb: get,
// list and watch, and no other. A "delete" in discovery would keep namespaces from being
// deleted: their controller waits for objects that cannot be deleted.
func TestStorageIsReadOnly(t *testing.T) {
	storage := any(&REST{})
	for verb, implemented := range map[string]bool{
		"create":           is[rest.Creater](storage) || is[rest.NamedCreater](storage),
		"update":           is[rest.Updater](storage),
		"patch":            is[rest.Patcher](storage),
		"delete":           is[rest.GracefulDeleter](storage),
		"deletecollection": is[rest.CollectionDeleter](storage),
		"connect":          is[rest.Connecter](storage),
	} {
		if implemented {
			t.Errorf("the storage implements %s", verb)
		}
	}
	for verb, implemented := range map[string]bool{
		"get":   is[rest.Getter](storage),
		"list":  is[rest.Lister](storage),
		"watch": is[rest.Watcher](storage),
	} {
		if !implemented {
			t.Errorf("the storage does not implement %s", verb)
		}
	}
}

func TestNamesInDiscovery(t *testing.T) {
	r := unsynced(t).rest
	got := []any{r.NamespaceScoped(), r.GetSingularName(), r.ShortNames(), r.Categories()}
	want := []any{true, "configdependency", []string{"cfgdep"}, []string{"configdep"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("discovery (-want +got):\n%s", diff)
	}
	if slices.Contains(r.Categories(), "all") {
		t.Error(`"kubectl delete all" would try to delete what cannot be deleted`)
	}
	if _, ok := r.New().(*v1alpha1.ConfigDependency); !ok {
		t.Errorf("kind %T", r.New())
	}
	if _, ok := r.NewList().(*v1alpha1.ConfigDependencyList); !ok {
		t.Errorf("list kind %T", r.NewList())
	}
}

// handlers does with an answer what those of the generic API server do: write it as JSON,
// and as a table with the metadata.
func handlers(t testing.TB, r *REST, o runtime.Object) []byte {
	t.Helper()
	out, err := runtime.Encode(encoder, o)
	if err != nil {
		t.Error(err)
	}
	table, err := r.ConvertToTable(t.Context(), o, &metav1.TableOptions{})
	if err != nil {
		t.Error(err)
		return out
	}
	for i := range table.Rows {
		m, err := meta.Accessor(table.Rows[i].Object.Object)
		if err != nil {
			t.Error(err)
			continue
		}
		partial := meta.AsPartialObjectMetadata(m)
		partial.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("PartialObjectMetadata"))
	}
	return out
}

var encoder = func() runtime.Encoder {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		panic(err)
	}
	codecs := serializer.NewCodecFactory(scheme)
	return codecs.LegacyCodec(v1alpha1.SchemeGroupVersion)
}()

// overwrite changes all fields of an object, as encoding changes its type. What they point to
// is shared, and must not change.
func overwrite(o *v1alpha1.ConfigDependency) {
	o.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind("ConfigDependency"))
	o.Name, o.Namespace, o.ResourceVersion, o.UID = "x", "x", "x", "x"
	o.Labels, o.Annotations, o.OwnerReferences = nil, map[string]string{"x": "x"}, nil
	o.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "x"}}
	o.Spec, o.Status = v1alpha1.ConfigDependencySpec{}, v1alpha1.ConfigDependencyStatus{}
}

// What a request does with its answer is not seen by the next one.
func TestAnswersAreCopies(t *testing.T) {
	c := newCluster(t, workload(kind.Deployment, "ns", "web", map[string]string{"app": "web"}, "Secret/db"))
	read := func() *v1alpha1.ConfigDependency {
		o, err := c.views.Lookup("ns", "deployment.web")
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	before := read().DeepCopy()
	one, err := c.rest.Get(in("ns"), "deployment.web", &metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	handlers(t, c.rest, one)
	overwrite(one.(*v1alpha1.ConfigDependency))
	all, err := c.rest.List(in("ns"), nil)
	if err != nil {
		t.Fatal(err)
	}
	handlers(t, c.rest, all)
	overwrite(&all.(*v1alpha1.ConfigDependencyList).Items[0])
	if diff := cmp.Diff(before, read()); diff != "" {
		t.Errorf("what is served has changed (-before +after):\n%s", diff)
	}
}

// Readers list, get and write answers while the cluster changes; the race detector looks
// on. Each list is in order, of one moment, and no list is older than the one before.
func TestReadingWhileTheClusterChanges(t *testing.T) {
	c := newCluster(t)
	const changes, readers = 500, 4
	done := make(chan struct{})
	started := make(chan struct{}, readers)
	var wg sync.WaitGroup
	for range readers {
		wg.Go(func() {
			var last uint64
			for n := 0; ; n++ {
				o, err := c.rest.List(in("ns"), &metainternalversion.ListOptions{ResourceVersion: strconv.FormatUint(last, 10)})
				if err != nil {
					t.Error(err)
					return
				}
				list := o.(*v1alpha1.ConfigDependencyList)
				last = checkList(t, list, last)
				if handlers(t, c.rest, list); t.Failed() {
					return
				}
				if _, err := c.views.Lookup("ns", "pod.3"); err != nil && !isNotFound(err) {
					t.Error(err)
				}
				if n == 0 {
					started <- struct{}{}
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	for range readers {
		<-started
	}
	// Two objects that are always there together, or not at all: a list with one of them
	// would be of no moment that ever was.
	a, b := workload(kind.Pod, "ns", "a", nil, "Secret/db"), workload(kind.Pod, "ns", "b", nil, "Secret/db")
	for i := range changes {
		c.Relist(func() {
			for _, o := range []ingesttest.Object{a, b} {
				if i%2 == 0 {
					c.Set(o)
				} else {
					c.Delete(o)
				}
			}
		})
		c.catchUp()
		c.set(workload(kind.Pod, "ns", strconv.Itoa(i%7), map[string]string{"i": strconv.Itoa(i)}, "ConfigMap/c"))
	}
	close(done)
	wg.Wait()
}

func checkList(t *testing.T, list *v1alpha1.ConfigDependencyList, last uint64) uint64 {
	t.Helper()
	version, err := strconv.ParseUint(list.ResourceVersion, 10, 64)
	if err != nil || version < last {
		t.Errorf("version %s after %d, %v", list.ResourceVersion, last, err)
	}
	together := 0
	for i := range list.Items {
		item := &list.Items[i]
		if v, err := strconv.ParseUint(item.ResourceVersion, 10, 64); err != nil || v > version {
			t.Errorf("an object of version %s in a list of version %d, %v", item.ResourceVersion, version, err)
		}
		if i > 0 && list.Items[i-1].Name >= item.Name {
			t.Errorf("%s before %s", list.Items[i-1].Name, item.Name)
		}
		if item.Name == "pod.a" || item.Name == "pod.b" {
			together++
		}
	}
	if together == 1 {
		t.Error("a list shows half of a change")
	}
	return version
}

func isNotFound(err error) bool {
	status, ok := err.(interface{ Status() metav1.Status })
	return ok && status.Status().Reason == metav1.StatusReasonNotFound
}
