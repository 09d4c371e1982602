// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes/fake"
)

// The parameters of policies are cached, and may be in Secrets. Only those that requests to this server may need are cached.
func TestParametersOfPolicies(t *testing.T) {
	secrets := &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "Secret"}
	client := fake.NewClientset()
	want := map[string]*admissionregistrationv1.ParamKind{}
	for name, test := range map[string]struct {
		groups [][]string // of each rule
		kept   bool
	}{
		"ours":                  {[][]string{{"configdep.io"}}, true},
		"ours-among-others":     {[][]string{{"apps"}, {"batch", "configdep.io"}}, true},
		"every-group":           {[][]string{{"*"}}, true},
		"the-core-group":        {[][]string{{""}}, false},
		"others":                {[][]string{{"apps", "batch"}, {"x.configdep.io"}}, false},
		"nothing":               {nil, false},
		"only-what-it-excludes": {[][]string{{"apps"}}, false},
	} {
		policy := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
		policy.Spec.ParamKind = secrets.DeepCopy()
		policy.Spec.MatchConstraints = &admissionregistrationv1.MatchResources{}
		for _, groups := range test.groups {
			rule := admissionregistrationv1.NamedRuleWithOperations{}
			rule.APIGroups = groups
			policy.Spec.MatchConstraints.ResourceRules = append(policy.Spec.MatchConstraints.ResourceRules, rule)
		}
		if name == "only-what-it-excludes" {
			rule := admissionregistrationv1.NamedRuleWithOperations{}
			rule.APIGroups = []string{"configdep.io"}
			policy.Spec.MatchConstraints.ExcludeResourceRules = append(policy.Spec.MatchConstraints.ExcludeResourceRules, rule)
		}
		if name == "nothing" {
			policy.Spec.MatchConstraints = nil
		}
		if _, err := client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Create(t.Context(), policy, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		want[name] = nil
		if test.kept {
			want[name] = secrets
		}
	}
	factory := newInformers(client)
	policies := factory.Admissionregistration().V1().ValidatingAdmissionPolicies()
	policies.Informer()
	factory.StartWithContext(t.Context())
	factory.WaitForCacheSyncWithContext(t.Context())
	cached, err := policies.Lister().List(labels.Everything())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]*admissionregistrationv1.ParamKind{}
	for _, p := range cached {
		got[p.Name] = p.Spec.ParamKind
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("parameters (-want +got):\n%s", diff)
	}
}
