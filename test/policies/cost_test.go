// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/configdep/configdep/pkg/record"
)

// The largest workloads cost a small part of the budget that kube-apiserver has for an expression, and workloads
// with too many annotations are refused without iterating over them. So are variables in pods with too many containers.
func TestWorkloads_CostIsBounded(t *testing.T) {
	compiled := compile(t, read(t)["workloads"])
	for name, test := range map[string]struct {
		annotations, containers, variables int
		set                                int // in how many containers a variable is set
		refused                            string
	}{
		"many annotations, a large template": {annotations: 250, containers: 1500},
		"very many annotations":              {annotations: 257, refused: "more than 256 annotations"},
		"the maximum number of annotations":  {annotations: 80_000, refused: "more than 256 annotations"},
		"a variable among many":              {containers: 256, variables: 20, set: 1},
		"many variables of one container":    {containers: 1, variables: 1000, set: 1},
		"very many containers":               {containers: 257, variables: 10, set: 257, refused: "at most 256 containers"},
		"the maximum number of containers":   {containers: 20_000, variables: 1, set: 1, refused: "at most 256 containers"},
	} {
		t.Run(name, func(t *testing.T) {
			old := &appsv1.Deployment{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}}
			old.Annotations, old.Spec.Template.Annotations = map[string]string{}, map[string]string{}
			for n := range test.annotations {
				key := fmt.Sprint(n)
				old.Annotations[key], old.Spec.Template.Annotations[key] = strings.Repeat("x", 500), "x"
			}
			for n := range test.containers {
				c := corev1.Container{Name: fmt.Sprintf("%063d", n), Image: strings.Repeat("x", 100)}
				for v := range test.variables {
					c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprintf("STAKATER_%d_SECRE", v), Value: strings.Repeat("x", 100)})
				}
				old.Spec.Template.Spec.Containers = append(old.Spec.Template.Spec.Containers, c)
			}
			now := old.DeepCopy()
			now.Annotations[record.ConfigHashAnnotation], now.Spec.Template.Annotations[record.ConfigHashAnnotation] = "x", "x"
			for i := range test.set {
				c := &now.Spec.Template.Spec.Containers[i]
				c.Env = append([]corev1.EnvVar{{Name: "STAKATER_DB_SECRET", Value: "x"}}, c.Env...)
			}
			for what, r := range map[string]*request{
				"typed": {old: old, new: now}, "as JSON": {old: asJSON(t, old), new: asJSON(t, now)},
			} {
				r.resource, r.user = kinds["Deployment"].resource, account
				if refusal := compiled.refusal(t, r); !strings.Contains(refusal, test.refused) || (refusal != "") != (test.refused != "") {
					t.Errorf("%s: refusal = %q, want one only for %q", what, refusal, test.refused)
				}
				cost := compiled.cost(t, r)
				most := int64(celconfig.PerCallLimit / 10)
				if test.refused != "" {
					most = 1000
				}
				t.Logf("%s: cost = %d", what, cost)
				if cost > most {
					t.Errorf("%s: cost = %d, want at most %d", what, cost, most)
				}
			}
		})
	}
}

func asJSON(t *testing.T, o runtime.Object) *unstructured.Unstructured {
	t.Helper()
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		t.Fatal(err)
	}
	return &unstructured.Unstructured{Object: raw}
}

// cost returns the cost of the validations as kube-apiserver counts it.
func (c *compiled) cost(t *testing.T, r *request) int64 {
	t.Helper()
	a := r.attributes()
	asked := cel.CreateAdmissionRequest(a, metav1.GroupVersionResource(r.resource), metav1.GroupVersionKind(a.VersionedKind))
	_, left, err := c.validations.ForInput(t.Context(), a, asked, cel.OptionalVariableBindings{}, nil, celconfig.RuntimeCELCostBudget)
	if err != nil {
		t.Fatal(err)
	}
	return celconfig.RuntimeCELCostBudget - left
}
