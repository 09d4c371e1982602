package apiserver

import (
	"encoding/json"
	"fmt"
	"testing"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
)

// writes remembers how long the longest write was.
type writes struct {
	content []byte
	longest int
}

func (w *writes) Write(p []byte) (int, error) {
	w.content = append(w.content, p...)
	w.longest = max(w.longest, len(p))
	return len(p), nil
}

// TestListsAreEncodedItemByItem: otherwise each list of a large cluster is in memory as a whole.
func TestListsAreEncodedItemByItem(t *testing.T) {
	list := &v1alpha1.ConfigDependencyList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
	for i := range 1000 {
		list.Items = append(list.Items, v1alpha1.ConfigDependency{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("deployment.", i)}})
	}
	serializer := newAPIGroup().NegotiatedSerializer
	info, found := runtime.SerializerInfoForMediaType(serializer.SupportedMediaTypes(), runtime.ContentTypeJSON)
	if !found {
		t.Fatal("no JSON")
	}
	var w writes
	if err := serializer.EncoderForVersion(info.Serializer, v1alpha1.SchemeGroupVersion).Encode(list, &w); err != nil {
		t.Fatal(err)
	}
	if w.longest > 4<<10 {
		t.Errorf("%d of %d bytes were written at once", w.longest, len(w.content))
	}
	var decoded v1alpha1.ConfigDependencyList
	if err := json.Unmarshal(w.content, &decoded); err != nil {
		t.Fatal(err)
	}
	if decoded.APIVersion != v1alpha1.SchemeGroupVersion.String() || decoded.Kind != "ConfigDependencyList" {
		t.Errorf("the list is of type %v", decoded.TypeMeta)
	}
	if decoded.ListMeta != list.ListMeta || !apiequality.Semantic.DeepEqual(decoded.Items, list.Items) {
		t.Error("the list is another one when it is decoded")
	}
}
