// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// The server fills its Secrets and the ConfigMap with its CAs, and re-applying manifests must never empty them. So no
// manifest has a field for their content, not even an empty one, nor a type, because a Secret of type TLS cannot be
// empty. A certificate from cert-manager or from users is in a Secret that the manifests do not contain.
func TestWhatTheServerKeepsComesEmpty(t *testing.T) {
	const key, certificate, authorities = "Secret/configdep-hmac-key", "Secret/configdep-serving-cert", "ConfigMap/configdep-serving-ca"
	for _, file := range renderedFiles(t) {
		want := []string{authorities, key, certificate}
		ids := slices.Collect(maps.Keys(rendered(t, file)))
		if strings.HasSuffix(file, "existing-secret.yaml") || slices.ContainsFunc(ids, func(id objectKey) bool { return id.kind == "Certificate" }) {
			want = []string{authorities, key}
		}
		t.Run(file, func(t *testing.T) {
			var got []string
			for id, o := range rendered(t, file) {
				name := id.kind + "/" + id.name
				if !slices.Contains([]string{key, certificate, authorities}, name) {
					continue
				}
				got = append(got, name)
				if id.namespace != namespace {
					t.Errorf("%s is in namespace %q, want the server's", name, id.namespace)
				}
				for _, field := range []string{"data", "stringData", "binaryData", "type", "immutable"} {
					if value, found, _ := unstructured.NestedFieldNoCopy(o.Object, field); found {
						t.Errorf("%s has the field %s = %v, want none", name, field, value)
					}
				}
			}
			slices.Sort(got)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
