// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	policyv1alpha1 "github.com/configdep/configdep/pkg/apis/policy/v1alpha1"
	"github.com/configdep/configdep/test/await"
)

var reloadPolicies = policyv1alpha1.SchemeGroupVersion.WithResource("reloadpolicies")

func decodePolicy(t *testing.T, o *unstructured.Unstructured) *policyv1alpha1.ReloadPolicy {
	t.Helper()
	out := &policyv1alpha1.ReloadPolicy{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, out, true); err != nil {
		t.Fatal(err)
	}
	return out
}

// The example has all fields, and is stored as it stands, with defaults. Its status can be written only as a subresource.
func TestReloadPolicy(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../artifacts/examples/reloadpolicy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(text, &o.Object); err != nil {
		t.Fatal(err)
	}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[policyv1alpha1.ReloadPolicySpec]()) {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if _, has, err := unstructured.NestedFieldNoCopy(o.Object, "spec", name); !has || err != nil {
			t.Errorf("the example has no %s (%v)", name, err)
		}
	}
	want := decodePolicy(t, o).Spec
	for i := range want.Budgets {
		want.Budgets[i].Scope = cmp.Or(want.Budgets[i].Scope, policyv1alpha1.ScopePolicy)
	}

	client := objects.Resource(reloadPolicies)
	made, err := client.Create(t.Context(), o, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Delete(context.WithoutCancel(t.Context()), o.GetName(), metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	if diff := gocmp.Diff(want, decodePolicy(t, made).Spec); diff != "" {
		t.Errorf("stored (-want +got):\n%s", diff)
	}
	made, err = client.Patch(t.Context(), o.GetName(), types.MergePatchType, []byte(`{"spec": null, "status": {"observedGeneration": 1}}`), metav1.PatchOptions{}, "status")
	if err != nil {
		t.Fatal(err)
	}
	if got := decodePolicy(t, made); got.Status.ObservedGeneration != 1 || !reflect.DeepEqual(got.Spec, want) {
		t.Errorf("with a status: %+v", got)
	}
}

// The API server refuses what no policy can mean, and says what is allowed.
func TestReloadPolicy_Validation(t *testing.T) {
	t.Parallel()
	const (
		unit     = "must be an integer from 0 to 1000000, or a percentage from 0% to 100%"
		together = "schedule and duration must be set together, and timeZone only with them"
		fields   = "must have the five fields of cron: minute, hour, day, month and weekday"
		length   = "must be between 1m and 8784h"
		zone     = "must be a name such as Europe/Berlin"
		name     = "must consist of lower case alphanumeric characters, '-', '.' or '*', and must start and end with an alphanumeric character or '*'"
		bake     = "must be between 0s and 168h"
	)
	many := func(times int, item string) string { return strings.Repeat(item+", ", times) }
	for _, test := range []struct {
		specs  []string          // with a place for a value
		values map[string]string // the error; empty: it is accepted
	}{
		{[]string{"budgets: [{workloads: %s}]", "budgets: [{pods: %s}]"}, map[string]string{
			"0": "", "1000000": "", "0%": "", "99%": "", "100%": "", "-1": unit, "1000001": unit, "110%": unit, "-1%": unit, `"5"`: unit,
		}},
		{[]string{"budgets: [{pods: 1, schedule: %s, duration: 8h}]", "windows: [{kind: Deny, schedule: %s, duration: 8h}]"}, map[string]string{
			"0 8 * * *": "", `" 0  8 1-7 */2 MON "`: "", "0 8 * *": fields, "0 0 8 * * *": fields, `"@daily"`: fields, `""`: fields,
		}},
		{[]string{"budgets: [{pods: 1, schedule: 0 8 * * *, duration: %s}]", "windows: [{kind: Deny, schedule: 0 8 * * *, duration: %s}]"}, map[string]string{
			"1m": "", "8784h": "", "10s": length, "8784h1s": length, "1d": length,
		}},
		{[]string{"budgets: [{pods: 1, schedule: 0 8 * * *, duration: 8h, timeZone: %s}]", "windows: [{kind: Deny, schedule: 0 8 * * *, duration: 8h, timeZone: %s}]"}, map[string]string{
			`""`: "", "Asia/Tokyo": "", "Mars/Olympus": zone, `"02:00"`: zone, "Local": zone,
		}},
		{[]string{"budgets: [%s]"}, map[string]string{
			"{}":                                "must have either workloads or pods",
			"{workloads: 1, pods: 1}":           "must have either workloads or pods",
			"{pods: 1, schedule: 0 8 * * *}":    together,
			"{pods: 1, duration: 8h}":           together,
			"{pods: 1, timeZone: UTC}":          together,
			"{pods: 1, scope: Node}":            `supported values: "Policy", "Namespace", "Source"`,
			many(8, "{pods: 1, scope: Source}"): "",
			many(9, "{pods: 1}"):                "must have at most 8 items",
		}},
		{[]string{"windows: [%s]"}, map[string]string{
			"{kind: Maybe, schedule: 0 8 * * *, duration: 8h}":                                `supported values: "Allow", "Deny"`,
			"{kind: Allow, duration: 8h}":                                                     "spec.windows[0].schedule: Required value",
			"{kind: Allow, schedule: 0 8 * * *}":                                              "spec.windows[0].duration: Required value",
			many(8, "{kind: Allow, schedule: 0 8 * * *, duration: 8h, timeZone: Asia/Tokyo}"): "",
			many(9, "{kind: Allow, schedule: 0 8 * * *, duration: 8h}"):                       "must have at most 8 items",
		}},
		{[]string{"sources: [{kind: Secret, name: %s}]"}, map[string]string{
			"db": "", `"*"`: "", "a-*.b": "", `"7"`: "", strings.Repeat("a", 254): "may not be more than 253 bytes",
			`""`: name, "Db": name, "db-": name, `"db[12]"`: name,
		}},
		{[]string{"sources: [%s]"}, map[string]string{
			"{kind: Pod, name: db}":              `supported values: "ConfigMap", "Secret", "SecretProviderClass"`,
			many(64, "{kind: Secret, name: db}"): "",
			many(65, "{kind: Secret, name: db}"): "must have at most 64 items",
		}},
		{[]string{"bakeTime: %s"}, map[string]string{"0s": "", "168h": "", "-1s": bake, "168h1s": bake}},
		{[]string{"failureLimit: %s"}, map[string]string{
			"1": "", "0": "should be greater than or equal to 1", "5000000000": "should be less than or equal to 1000000",
		}},
		{[]string{"approval: %s"}, map[string]string{"NotRequired": "", "Maybe": `supported values: "NotRequired", "Required"`}},
		{[]string{"requests: %s"}, map[string]string{"Exempt": "", "Refused": `supported values: "Exempt", "Bound"`}},
	} {
		for _, spec := range test.specs {
			for value, want := range test.values {
				spec := fmt.Sprintf(spec, value)
				t.Run(fmt.Sprintf("%.80s", spec), func(t *testing.T) {
					t.Parallel()
					checkPolicy(t, spec, want)
				})
			}
		}
	}
}

func checkPolicy(t *testing.T, text, want string) {
	t.Helper()
	spec := content{}
	if err := yaml.Unmarshal([]byte(text), &spec); err != nil {
		t.Fatal(err)
	}
	o := &unstructured.Unstructured{Object: content{
		"apiVersion": policyv1alpha1.SchemeGroupVersion.String(), "kind": "ReloadPolicy", "metadata": content{"generateName": "test-"}, "spec": spec,
	}}
	made, err := objects.Resource(reloadPolicies).Create(t.Context(), o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
	if want != "" {
		checkError(t, err, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, want)
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if s := decodePolicy(t, made).Spec; s.Approval != policyv1alpha1.ApprovalNotRequired || s.Requests != policyv1alpha1.RequestsExempt {
		t.Errorf("defaults: approval %s, requests %s", s.Approval, s.Requests)
	}
}

// Users who may view the cluster see the policies. No default role but that of administrators of the cluster lets them write any.
func TestReloadPolicy_Roles(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"configdep-policy-view", "view", "edit", "admin"} {
		await.Until(t, name+" has the rights on policies", func(ctx context.Context) error {
			role, err := kube.RbacV1().ClusterRoles().Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			granted := false
			for _, rule := range role.Rules {
				if !slices.Contains(rule.APIGroups, reloadPolicies.Group) {
					continue
				}
				if granted = slices.Equal(rule.Verbs, []string{"get", "list", "watch"}); !granted {
					return fmt.Errorf("%s has %v", name, rule)
				}
			}
			if !granted {
				return errors.New("no right yet")
			}
			return nil
		})
	}
}
