// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// Every rule of a role is explained by a comment "Why:" above it.
func TestEveryRuleSaysWhy(t *testing.T) {
	rule := regexp.MustCompile(`^- (apiGroups|nonResourceURLs):`)
	seen := 0
	for _, file := range templates(t) {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text := lines(string(content))
		for n, line := range text {
			if !rule.MatchString(line) {
				continue
			}
			seen++
			first := n
			for first > 0 && strings.HasPrefix(text[first-1], "#") {
				first--
			}
			if !strings.HasPrefix(text[first], "# Why: ") {
				t.Errorf("%s:%d: the rule has no comment \"Why:\"", file, n+1)
			}
		}
	}
	if seen < 20 {
		t.Errorf("found only %d rules", seen)
	}
}

// Whatever the values, no installation has permissions on all resources, permissions that allow escalation,
// permission to write any Secret, or to delete anything but Jobs that it replaces.
func TestNoRoleIsTooWide(t *testing.T) {
	for _, file := range renderedFiles(t) {
		t.Run(file, func(t *testing.T) {
			for key, o := range rendered(t, file) {
				if key.kind != "Role" && key.kind != "ClusterRole" {
					continue
				}
				var role rbacv1.ClusterRole // a Role has the same rules
				if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &role); err != nil {
					t.Fatal(err)
				}
				for _, rule := range role.Rules {
					checkRule(t, key, &rule)
				}
			}
		})
	}
}

func checkRule(t *testing.T, role objectKey, rule *rbacv1.PolicyRule) {
	t.Helper()
	has := func(in []string, some ...string) bool {
		return slices.ContainsFunc(some, func(one string) bool { return slices.Contains(in, one) })
	}
	switch {
	case has(rule.Verbs, "*") || has(rule.Resources, "*") || has(rule.APIGroups, "*"):
		t.Errorf("%v has a wildcard: %v", role, rule)
	case has(rule.Verbs, "delete") && !slices.Equal(rule.Resources, []string{"jobs"}),
		has(rule.Verbs, "deletecollection", "escalate", "bind", "impersonate"):
		t.Errorf("%v may %v", role, rule)
	case has(rule.Resources, "secrets") && has(rule.Verbs, "update", "patch") && len(rule.ResourceNames) == 0:
		t.Errorf("%v may write any Secret: %v", role, rule)
	case has(rule.Resources, "secrets") && has(rule.Verbs, "create"):
		t.Errorf("%v may create Secrets: %v", role, rule)
	case has(rule.Resources, "configmaps") && has(rule.Verbs, "create", "update", "patch") && (len(rule.ResourceNames) == 0 || has(rule.Verbs, "create")):
		t.Errorf("%v may write any ConfigMap: %v", role, rule)
	case has(rule.Resources, "leases") && role.kind != "Role":
		t.Errorf("%v has permissions on Leases in the whole cluster: %v", role, rule)
	}
}

// In every installation, the policies restrict the server and no other user: they name the ServiceAccount of the
// Deployment, and each has a binding. A server that may evict pods, annotate them, or create Jobs, has a
// policy for these, too.
func TestEveryServerIsHeldToPolicies(t *testing.T) {
	for _, file := range renderedFiles(t) {
		t.Run(file, func(t *testing.T) {
			objects := rendered(t, file)
			var account string
			evicts, creates, annotates := false, false, false
			policies, bound := map[string]string{}, map[string]bool{}
			for key, o := range objects {
				switch key.kind {
				case "Deployment":
					name, _, _ := nestedString(o.Object, "spec", "template", "spec", "serviceAccountName")
					account = "system:serviceaccount:" + key.namespace + ":" + name
				case "ClusterRole":
					text, err := o.MarshalJSON()
					evicts = evicts || strings.Contains(string(text), "pods/eviction")
					annotates = annotates || strings.Contains(string(text), `["pods"],"verbs":["patch"]`)
					creates = creates || strings.Contains(string(text), `"create","patch","delete"`)
					if err != nil {
						t.Fatal(err)
					}
				case "ValidatingAdmissionPolicy":
					conditions, _, _ := unstructured.NestedSlice(o.Object, "spec", "matchConditions")
					for _, c := range conditions {
						policies[key.name] += c.(map[string]any)["expression"].(string)
					}
				case "ValidatingAdmissionPolicyBinding":
					policy, _, _ := nestedString(o.Object, "spec", "policyName")
					bound[policy] = true
				}
			}
			want := 4
			switch {
			case account == "" || file == "minimal.yaml": // without a server, or with policies disabled
				want = 0
			default:
				for _, more := range []bool{evicts, creates, annotates} {
					if more {
						want++
					}
				}
			}
			if len(policies) != want || len(bound) != want {
				t.Errorf("found %d policies and %d bindings, want %d each", len(policies), len(bound), want)
			}
			for name, condition := range policies {
				if condition != "has(request.userInfo.username) && request.userInfo.username == '"+account+"'" {
					t.Errorf("%s: condition = %s, want one for %s", name, condition, account)
				}
				if !bound[name] {
					t.Errorf("%s has no binding", name)
				}
			}
			if files := []string{"recreate.yaml", "everything.yaml"}; evicts != slices.Contains(files, file) {
				t.Errorf("the server may evict pods = %v, want only with the strategy recreate", evicts)
			}
			if files := []string{"in-place.yaml", "everything.yaml"}; annotates != slices.Contains(files, file) {
				t.Errorf("the server may annotate pods = %v, want only with the strategy in-place", annotates)
			}
			if files := []string{"reload-jobs.yaml", "everything.yaml"}; creates != slices.Contains(files, file) {
				t.Errorf("the server may create Jobs = %v, want only with --reload-jobs", creates)
			}
		})
	}
}
