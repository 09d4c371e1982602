// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package policies tests the admission policies of the manifests with changes of every field, by the code with
// which kube-apiserver evaluates them.
package policies

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"
)

// account is the user that the policies restrict.
const account = "system:serviceaccount:configdep-system:configdep-apiserver"

// read returns the policies in the manifests, by the last part of their names.
func read(t testing.TB) map[string]*admissionregistrationv1.ValidatingAdmissionPolicy {
	t.Helper()
	return readFrom(t, withPresets)
}

func readFrom(t testing.TB, manifests string) map[string]*admissionregistrationv1.ValidatingAdmissionPolicy {
	t.Helper()
	policies := map[string]*admissionregistrationv1.ValidatingAdmissionPolicy{}
	content, err := os.ReadFile(manifests)
	if err != nil {
		t.Fatal(err)
	}
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
	for {
		policy := &admissionregistrationv1.ValidatingAdmissionPolicy{}
		if err := decoder.Decode(policy); errors.Is(err, io.EOF) {
			return policies
		} else if err != nil {
			t.Fatal(err)
		}
		if policy.Kind == "ValidatingAdmissionPolicy" {
			policies[strings.TrimPrefix(policy.Name, "configdep-apiserver-")] = policy
		}
	}
}

// compiled is a policy as kube-apiserver compiles it.
type compiled struct {
	name                    string
	conditions, validations cel.ConditionEvaluator
	validator               validating.Validator
}

// compile compiles a policy as the admission plugin of kube-apiserver does.
func compile(t testing.TB, policy *admissionregistrationv1.ValidatingAdmissionPolicy) *compiled {
	t.Helper()
	compiler, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		t.Fatal(err)
	}
	options, mode := cel.OptionalVariableDeclarations{HasAuthorizer: true}, environment.NewExpressions
	var variables []cel.NamedExpressionAccessor
	for _, v := range policy.Spec.Variables {
		variables = append(variables, &validating.Variable{Name: v.Name, Expression: v.Expression})
	}
	compiler.CompileAndStoreVariables(variables, options, mode)
	var conditions, validations []cel.ExpressionAccessor
	for i := range policy.Spec.MatchConditions {
		conditions = append(conditions, (*matchconditions.MatchCondition)(&policy.Spec.MatchConditions[i]))
	}
	for _, v := range policy.Spec.Validations {
		validations = append(validations, &validating.ValidationCondition{Expression: v.Expression, Message: v.Message, Reason: v.Reason})
	}
	c := &compiled{name: policy.Name, conditions: compiler.CompileCondition(conditions, options, mode), validations: compiler.CompileCondition(validations, options, mode)}
	for _, evaluator := range []cel.ConditionEvaluator{c.conditions, c.validations} {
		if errs := evaluator.CompilationErrors(); len(errs) > 0 {
			t.Fatal(errs)
		}
	}
	matcher := matchconditions.NewMatcher(c.conditions, policy.Spec.FailurePolicy, "policy", "validate", policy.Name)
	none := compiler.CompileCondition(nil, options, mode)
	c.validator = validating.NewValidator(c.validations, matcher, none, none, policy.Spec.FailurePolicy, nil)
	return c
}

// request is a request that a policy evaluates.
type request struct {
	resource schema.GroupVersionResource
	user     string
	manager  string // of fields
	old, new runtime.Object
}

func (r *request) attributes() *admission.VersionedAttributes {
	operation := admission.Update
	switch {
	case r.old == nil:
		operation = admission.Create
	case r.new == nil:
		operation = admission.Delete
	}
	var kind schema.GroupVersionKind
	var name, namespace string
	if r.new != nil {
		kind = r.new.GetObjectKind().GroupVersionKind()
		if o, err := meta.Accessor(r.new); err == nil {
			name, namespace = o.GetName(), o.GetNamespace()
		}
	}
	attributes := admission.NewAttributesRecord(r.new, r.old, kind, namespace, name, r.resource, "", operation, &metav1.UpdateOptions{FieldManager: r.manager}, false, &user.DefaultInfo{Name: r.user})
	return &admission.VersionedAttributes{
		Attributes: attributes, VersionedKind: kind,
		VersionedObject: admission.NewLazyObject(r.new), VersionedOldObject: admission.NewLazyObject(r.old),
	}
}

// refusal returns the message with which a policy refuses a request, or "" if the policy allows it.
func (c *compiled) refusal(t testing.TB, r *request) string {
	t.Helper()
	result := c.validator.Validate(t.Context(), r.resource, r.attributes(), nil, nil, celconfig.RuntimeCELCostBudget, nil)
	for _, d := range result.Decisions {
		switch {
		case d.Evaluation == validating.EvalError:
			t.Errorf("%s cannot be evaluated: %s", c.name, d.Message)
			return d.Message
		case d.Action == validating.ActionDeny:
			if d.Reason != metav1.StatusReasonForbidden {
				t.Errorf("%s refuses with the reason %s, want Forbidden", c.name, d.Reason)
			}
			return d.Message
		}
	}
	return ""
}
