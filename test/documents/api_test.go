// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package documents

import (
	"regexp"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
)

// The objects in docs/api.md have no field that the API has not.
func TestObjectsOfTheAPI(t *testing.T) {
	t.Parallel()
	seen := map[string]int{}
	for _, found := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(documents(t)["docs/api.md"], -1) {
		var is metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(found[1]), &is); err != nil {
			t.Fatal(err)
		}
		object := map[string]any{
			"":                 &rbacv1.Role{},
			"ConfigDependency": &v1alpha1.ConfigDependency{},
			"Reload":           &v1alpha1.Reload{},
			"Approval":         &v1alpha1.Approval{},
		}[is.Kind]
		if err := yaml.UnmarshalStrict([]byte(found[1]), object); err != nil {
			t.Errorf("%v:\n%s", err, found[1])
		}
		if is.Kind != "" && is.APIVersion != v1alpha1.SchemeGroupVersion.String() {
			t.Errorf("%s has the version %q", is.Kind, is.APIVersion)
		}
		seen[is.Kind]++
	}
	for _, kind := range []string{"", "ConfigDependency", "Reload", "Approval"} {
		if seen[kind] == 0 {
			t.Errorf("docs/api.md has no object of the kind %q", kind)
		}
	}
}
