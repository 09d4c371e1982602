// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package configdependency

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/kind"
)

func implements[T any](storage any) bool { _, ok := storage.(T); return ok }

// Every method set that the installer of the generic API server knows becomes a verb: get,
// list and watch, and no other. A "delete" in discovery would keep namespaces from being
// deleted: their controller waits for objects that cannot be deleted.
func TestStorageIsReadOnly(t *testing.T) {
	storage := any(&REST{})
	for verb, implemented := range map[string]bool{
		"create":           implements[rest.Creater](storage) || implements[rest.NamedCreater](storage),
		"update":           implements[rest.Updater](storage),
		"patch":            implements[rest.Patcher](storage),
		"delete":           implements[rest.GracefulDeleter](storage),
		"deletecollection": implements[rest.CollectionDeleter](storage),
		"connect":          implements[rest.Connecter](storage),
	} {
		if implemented {
			t.Errorf("the storage implements %s", verb)
		}
	}
	for verb, implemented := range map[string]bool{
		"get":   implements[rest.Getter](storage),
		"list":  implements[rest.Lister](storage),
		"watch": implements[rest.Watcher](storage),
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
