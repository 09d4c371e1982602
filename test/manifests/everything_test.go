// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// With all values set, each has its effect, in the fields that testdata/everything.yaml lists.
func TestAllValuesTogether(t *testing.T) {
	const file = "everything.yaml"
	content, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	objects := rendered(t, file)
	for key, want := range decode(t, file, content) {
		got, ok := objects[key]
		if !ok {
			t.Errorf("%v is missing", key)
			continue
		}
		if diff := cmp.Diff(want.Object, likewise(want.Object, got.Object)); diff != "" {
			t.Errorf("%v (-want +got):\n%s", key, diff)
		}
	}
	for key, o := range objects {
		if o.GetLabels()["team"] != "platform" || o.GetAnnotations()["example.com/owner"] != "platform" {
			t.Errorf("%v: labels = %v, annotations = %v, want the common ones too", key, o.GetLabels(), o.GetAnnotations())
		}
		if !strings.HasSuffix(key.kind, "RoleBinding") || key.name == "configdep-metrics" { // which is for Prometheus
			continue
		}
		subjects, _, _ := unstructured.NestedSlice(o.Object, "subjects")
		if want := []any{map[string]any{"kind": "ServiceAccount", "name": "configdep-server", "namespace": namespace}}; !cmp.Equal(subjects, want) {
			t.Errorf("%v: subjects = %v, want the ServiceAccount of the server", key, subjects)
		}
	}
}

// likewise returns got, reduced to the fields that want has.
func likewise(want, got any) any {
	switch want := want.(type) {
	case map[string]any:
		fields, ok := got.(map[string]any)
		if !ok || len(want) == 0 {
			return got
		}
		same := map[string]any{}
		for key, value := range want {
			if field, ok := fields[key]; ok || value == nil {
				same[key] = likewise(value, field)
			}
		}
		return same
	case []any:
		elements, ok := got.([]any)
		if !ok || len(elements) != len(want) {
			return got
		}
		var same []any
		for i := range want {
			same = append(same, likewise(want[i], elements[i]))
		}
		return same
	}
	return got
}
