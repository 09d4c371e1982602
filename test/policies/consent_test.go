// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/configdep/configdep/pkg/policy"
)

// docs/kinds.md has a policy by which operators cannot consent to fields in the place of the owner of a Secret.
func TestConsentByOperators(t *testing.T) {
	text, err := os.ReadFile("../../docs/kinds.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?s)<!-- consent -->\n```yaml\n(.*?)```\n").FindSubmatch(text)
	if found == nil {
		t.Fatal("docs/kinds.md has no policy")
	}
	file := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(file, found[1], 0o600); err != nil {
		t.Fatal(err)
	}
	compiled := compile(t, readFrom(t, file)["no-consent-by-operators"])
	const operator, refused = "system:serviceaccount:cert-manager:cert-manager", "this operator must not set configdep.io/allow-fields"
	secret := func(pairs ...string) runtime.Object {
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "tls", Namespace: "shop"}}
		for i := 0; i < len(pairs); i += 2 {
			metav1.SetMetaDataAnnotation(&s.ObjectMeta, pairs[i], pairs[i+1])
		}
		return s
	}
	consent := func(value string) runtime.Object { return secret(policy.AllowFieldsAnnotation, value) }
	for name, tt := range map[string]struct {
		user     string
		old, new runtime.Object
		refusal  string
	}{
		"an operator consents":                {operator, secret(), consent("farm/*"), refused},
		"an operator creates a Secret":        {operator, nil, secret("a", "b"), ""},
		"an operator creates one that agrees": {operator, nil, consent("farm/*"), refused},
		"an operator consents to more":        {operator, consent("farm/a"), consent("farm/*"), refused},
		"an operator keeps consent":           {operator, consent("farm/a"), consent("farm/a"), ""},
		"an operator withdraws it":            {operator, consent("farm/a"), secret("a", "b"), ""},
		"an operator sets another annotation": {operator, secret(), secret("a", "b"), ""},
		"a user consents":                     {"kim", secret(), consent("farm/*"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := compiled.refusal(t, &request{resource: corev1.SchemeGroupVersion.WithResource("secrets"), user: tt.user, old: tt.old, new: tt.new})
			if got != tt.refusal {
				t.Errorf("refusal = %q, want %q", got, tt.refusal)
			}
		})
	}
}
