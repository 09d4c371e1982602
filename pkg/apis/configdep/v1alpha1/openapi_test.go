// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/generated/openapi"
)

const ours = "io.configdep.v1alpha1."

var kinds = []string{"ConfigDependency", "ConfigDependencyList", "Reload", "Approval", "ConfigDependencyPods", "ConfigDependencyPlan", "PlanOptions"}

func definitions() map[string]common.OpenAPIDefinition {
	return openapi.GetOpenAPIDefinitions(func(name string) spec.Ref { return spec.MustCreateRef("#/definitions/" + name) })
}

// kubectl explain shows a description of each type and field.
func TestEveryFieldIsDescribed(t *testing.T) {
	defs := definitions()
	seen := map[string]bool{}
	properties := 0
	var visit func(model string)
	var visitSchema func(path string, s *spec.Schema)
	visit = func(model string) {
		if seen[model] || !strings.HasPrefix(model, ours) {
			return
		}
		seen[model] = true
		def, found := defs[model]
		if !found {
			t.Errorf("no definition of %s: run hack/generate.sh", model)
			return
		}
		if def.Schema.Description == "" {
			t.Errorf("%s has no description", model)
		}
		for name, property := range def.Schema.Properties {
			properties++
			path := strings.TrimPrefix(model, ours) + "." + name
			switch property.Description {
			case "":
				t.Errorf("%s has no description", path)
			default:
				// The Go comment, which starts with the name of the field in the API, not in Go.
				if name != "kind" && name != "apiVersion" && !strings.HasPrefix(property.Description, name+" ") {
					t.Errorf("the description of %s does not start with its name: %q", path, property.Description)
				}
			}
			visitSchema(path, &property)
		}
	}
	visitSchema = func(path string, s *spec.Schema) {
		if ref := s.Ref.String(); ref != "" {
			visit(strings.TrimPrefix(ref, "#/definitions/"))
		}
		if s.Items != nil && s.Items.Schema != nil {
			visitSchema(path+"[]", s.Items.Schema)
		}
		if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
			visitSchema(path+"{}", s.AdditionalProperties.Schema)
		}
	}
	for _, kind := range kinds {
		visit(ours + kind)
	}

	// The test must have found the types:
	for model := range defs {
		if strings.HasPrefix(model, ours) && !seen[model] {
			t.Errorf("no kind uses %s", model)
		}
	}
	if len(seen) < 10 || properties < 50 {
		t.Errorf("only %d types with %d properties were found", len(seen), properties)
	}
}

// kubectl finds the schema of a kind by this extension.
func TestKindsAreMarkedInOpenAPI(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	namer := openapinamer.NewDefinitionNamer(scheme)
	for _, kind := range kinds {
		name, extensions := namer.GetDefinitionName(ours + kind)
		if name != ours+kind {
			t.Errorf("the definition of %s is named %s", ours+kind, name)
		}
		want := []any{map[string]any{"group": "configdep.io", "version": "v1alpha1", "kind": kind}}
		if diff := cmp.Diff(want, extensions["x-kubernetes-group-version-kind"]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", kind, diff)
		}
	}
	if _, extensions := namer.GetDefinitionName(ours + "Source"); len(extensions) != 0 {
		t.Errorf("Source is not a kind, but has %v", extensions)
	}
}

// Lists with keys are merged by their keys, and sets have no duplicates: server-side apply and strategic merge
// patches of clients rely on the list types.
func TestListsHaveTypes(t *testing.T) {
	untyped := []string{"ConfigDependencyList.items"}
	lists := 0
	for model, def := range definitions() {
		if !strings.HasPrefix(model, ours) {
			continue
		}
		for name, property := range def.Schema.Properties {
			path := strings.TrimPrefix(model, ours) + "." + name
			if !property.Type.Contains("array") || slices.Contains(untyped, path) {
				continue
			}
			lists++
			if listType, _ := property.Extensions.GetString("x-kubernetes-list-type"); listType == "" {
				t.Errorf("%s has no list type", path)
			}
		}
	}
	if lists < 5 {
		t.Errorf("only %d lists were found", lists)
	}
}

func TestSchemeKnowsTheKinds(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for _, kind := range kinds {
		if !scheme.Recognizes(v1alpha1.SchemeGroupVersion.WithKind(kind)) {
			t.Errorf("the scheme does not know %s", kind)
		}
	}
	if got, want := v1alpha1.Kind("Reload"), (schema.GroupKind{Group: "configdep.io", Kind: "Reload"}); got != want {
		t.Errorf("kind %v", got)
	}
	if got, want := v1alpha1.Resource("configdependencies"), (schema.GroupResource{Group: "configdep.io", Resource: "configdependencies"}); got != want {
		t.Errorf("resource %v", got)
	}
}
