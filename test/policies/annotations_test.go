// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
)

// keeper is a MutatingAdmissionPolicy as kube-apiserver compiles it.
type keeper struct {
	rules     []admissionregistrationv1.NamedRuleWithOperations
	matcher   matchconditions.Matcher
	compiler  *cel.CompositedCompiler
	mutations []cel.MutatingEvaluator
}

// keepers returns the policies in manifests.
func keepers(t *testing.T, manifests string) (all []*keeper) {
	t.Helper()
	for _, document := range documents(t, manifests) {
		if !bytes.Contains(document, []byte("kind: MutatingAdmissionPolicy\n")) {
			continue
		}
		var p admissionregistrationv1.MutatingAdmissionPolicy
		if err := yaml.UnmarshalStrict(document, &p); err != nil {
			t.Fatal(err)
		}
		if *p.Spec.FailurePolicy != admissionregistrationv1.Ignore {
			t.Errorf("%s keeps workloads from being changed if it fails", p.Name)
		}
		compiler, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
		if err != nil {
			t.Fatal(err)
		}
		options, mode := cel.OptionalVariableDeclarations{HasAuthorizer: true}, environment.NewExpressions
		var variables []cel.NamedExpressionAccessor
		for _, v := range p.Spec.Variables {
			variables = append(variables, &validating.Variable{Name: v.Name, Expression: v.Expression})
		}
		compiler.CompileAndStoreVariables(variables, options, mode)
		var conditions []cel.ExpressionAccessor
		for i := range p.Spec.MatchConditions {
			conditions = append(conditions, (*matchconditions.MatchCondition)(&p.Spec.MatchConditions[i]))
		}
		compiled := compiler.CompileCondition(conditions, options, mode)
		if errs := compiled.CompilationErrors(); len(errs) > 0 {
			t.Fatal(errs)
		}
		k := &keeper{rules: p.Spec.MatchConstraints.ResourceRules, compiler: compiler, matcher: matchconditions.NewMatcher(compiled, p.Spec.FailurePolicy, "policy", "validate", p.Name)}
		options.HasPatchTypes = true
		for _, m := range p.Spec.Mutations {
			evaluator := compiler.CompileMutatingEvaluator(&patch.JSONPatchCondition{Expression: m.JSONPatch.Expression}, options, mode)
			if errs := evaluator.CompilationErrors(); len(errs) > 0 {
				t.Fatal(errs)
			}
			k.mutations = append(k.mutations, evaluator)
		}
		all = append(all, k)
	}
	return all
}

// keeperOf returns the only policy for a resource.
func keeperOf(t *testing.T, manifests string, resource schema.GroupVersionResource) *keeper {
	t.Helper()
	all := slices.DeleteFunc(keepers(t, manifests), func(k *keeper) bool {
		return !slices.ContainsFunc(k.rules, func(r admissionregistrationv1.NamedRuleWithOperations) bool {
			return slices.Contains(r.APIGroups, resource.Group) && slices.Contains(r.APIVersions, resource.Version) && slices.Contains(r.Resources, resource.Resource)
		})
	})
	if len(all) != 1 {
		t.Fatalf("%d policies are for %v", len(all), resource)
	}
	return all[0]
}

// admit returns the object of a request as the policy changes it.
func (k *keeper) admit(t *testing.T, r *request) runtime.Object {
	t.Helper()
	attributes := r.attributes()
	match := k.matcher.Match(k.compiler.CreateContext(t.Context()), attributes, nil, nil)
	if match.Error != nil {
		t.Fatal(match.Error)
	}
	if !match.Matches {
		return r.new
	}
	for _, m := range k.mutations {
		now, err := patch.NewJSONPatcher(m).Patch(k.compiler.CreateContext(t.Context()), patch.Request{
			MatchedResource: r.resource, VersionedAttributes: attributes, ObjectInterfaces: admission.NewObjectInterfacesFromScheme(scheme.Scheme),
		}, celconfig.RuntimeCELCostBudget)
		if err != nil {
			t.Fatal(err)
		}
		attributes.VersionedObject = admission.NewLazyObject(now)
	}
	return attributes.VersionedObject.Object()
}

// marks are the annotations of a workload and of its pod template; nil: it has no such map.
type marks struct{ workload, template map[string]string }

func on(pairs ...string) map[string]string {
	out := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		out[pairs[i]] = pairs[i+1]
	}
	return out
}

// An owner writes a workload without what configdep has recorded there.
func TestAnnotations(t *testing.T) {
	const hash, sources, last, fields, pods = record.ConfigHashAnnotation, record.AppliedSourcesAnnotation, record.LastReloadAnnotation, record.AppliedFieldsAnnotation, record.RecreatingAnnotation
	const at, from = record.ReloadedAtAnnotation, record.LastReloadedFrom
	ours := marks{on(hash, "h", sources, "s", last, "l", fields, "f", pods, "p", "note", "old"), on(hash, "h", at, "a", from, "r", "example.com/x", "y")}
	restored := marks{on(hash, "h", sources, "s", last, "l", fields, "f", pods, "p", "note", "new"), on(hash, "h", at, "a", from, "r", "example.com/x", "y")}
	for name, tt := range map[string]struct {
		before, written, after marks
		image                  string // of the new template; empty: the same
		user, manager          string
	}{
		"all are gone":           {ours, marks{on("note", "new"), on("example.com/x", "y")}, restored, "", "", ""},
		"all are others":         {ours, marks{on(hash, "H", sources, "S", last, "L", fields, "F", pods, "P", "note", "new"), on(hash, "H", at, "A", from, "R", "example.com/x", "y")}, restored, "", "", ""},
		"without any annotation": {marks{on(hash, "h"), on(hash, "h")}, marks{}, marks{on(hash, "h"), on(hash, "h")}, "", "", ""},
		"of the workload alone":  {marks{on(hash, "h"), nil}, marks{}, marks{on(hash, "h"), nil}, "", "", ""},
		"of the template alone":  {marks{nil, on(hash, "h")}, marks{nil, on()}, marks{on(), on(hash, "h")}, "", "", ""},
		"of a copy of another":   {marks{on(hash, "h"), on(hash, "h")}, marks{on(hash, "h", last, "l"), on(hash, "h", at, "a")}, marks{on(hash, "h"), on(hash, "h")}, "", "", ""},
		"the last one of a copy": {marks{on(hash, "h"), nil}, marks{on(hash, "h"), on(at, "a")}, marks{on(hash, "h"), on()}, "", "", ""},
		"with another template": {
			ours, marks{on("note", "new"), on("example.com/x", "y")}, marks{restored.workload, on("example.com/x", "y")}, "app:2", "", "",
		},
		"with another annotation of the template": {
			ours, marks{on("note", "new"), on("example.com/x", "z")}, marks{restored.workload, on("example.com/x", "z")}, "", "", "",
		},
		"with one annotation of the template less": {ours, marks{on("note", "new"), on()}, marks{restored.workload, on()}, "", "", ""},
		"opting out":             {ours, marks{on(policy.ReloadAnnotation, "off"), nil}, marks{on(policy.ReloadAnnotation, "off"), nil}, "", "", ""},
		"opting out by removing": {ours, marks{nil, on("example.com/x", "y")}, marks{on(hash, "h", sources, "s", last, "l", fields, "f", pods, "p"), ours.template}, "", "", ""},
		"by configdep":           {ours, marks{on("note", "new"), nil}, marks{on("note", "new"), nil}, "", account, ""},
		"by another configdep":   {ours, marks{on("note", "new"), nil}, marks{on("note", "new"), nil}, "", "", "configdep"},
		"by Reloader": {
			marks{on(hash, "h"), on(hash, "h", from, "r")}, marks{on(hash, "h"), on(hash, "h", from, "R")}, marks{on(hash, "h"), on(hash, "h", from, "R")}, "", "", "Reloader",
		},
		"nothing of ours": {marks{on("note", "old"), nil}, marks{on("note", "new"), nil}, marks{on("note", "new"), nil}, "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			deployment := func(m marks) *appsv1.Deployment {
				d := &appsv1.Deployment{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}}
				d.Name, d.Namespace, d.Annotations = "web", "shop", maps.Clone(m.workload)
				d.Spec.Template.Labels, d.Spec.Template.Annotations = on("app", "web"), maps.Clone(m.template)
				d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "app", Image: "app:1"}}
				return d
			}
			before, written, after := deployment(tt.before), deployment(tt.written), deployment(tt.after)
			if tt.image != "" {
				written.Spec.Template.Spec.Containers[0].Image, after.Spec.Template.Spec.Containers[0].Image = tt.image, tt.image
			}
			if tt.user == "" {
				tt.user = "kim"
			}
			resource := kinds["Deployment"].resource
			typed := keeperOf(t, withPresets, resource).admit(t, &request{resource: resource, user: tt.user, manager: tt.manager, old: before, new: written})
			if diff := cmp.Diff(asJSON(t, after).Object, asJSON(t, typed).Object); diff != "" {
				t.Errorf("a Deployment (-want +got):\n%s", diff)
			}
			resource = schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "rollouts"}
			rollout := func(d *appsv1.Deployment) *unstructured.Unstructured {
				o := asJSON(t, d)
				o.SetAPIVersion("argoproj.io/v1alpha1")
				o.SetKind("Rollout")
				return o
			}
			custom := keeperOf(t, withPresets, resource).admit(t, &request{resource: resource, user: tt.user, manager: tt.manager, old: rollout(before), new: rollout(written)})
			if diff := cmp.Diff(withoutEmpty(rollout(after).Object), withoutEmpty(custom.(*unstructured.Unstructured).Object)); diff != "" { //nolint:forcetypeassert // as it was given
				t.Errorf("a Rollout (-want +got):\n%s", diff)
			}
		})
	}
}

// A Deployment that a restart has paused is resumed by the annotation that says so. An owner that writes it without that annotation leaves it paused, so
// it is kept as long as the Deployment is.
func TestAnnotations_OfAPause(t *testing.T) {
	const key = "deployment.reloader.stakater.com/paused-at"
	for name, tt := range map[string]struct {
		before, written, after map[string]string
		paused                 bool
	}{
		"an owner removes it":                        {on(key, "t"), on("note", "new"), on(key, "t", "note", "new"), true},
		"an owner removes it, and all others":        {on(key, "t"), nil, on(key, "t"), true},
		"an owner changes it":                        {on(key, "t"), on(key, "u"), on(key, "t"), true},
		"a user resumes it":                          {on(key, "t"), nil, nil, false},
		"a user pauses it, and says it is a restart": {nil, on(key, "t"), on(), true},
	} {
		t.Run(name, func(t *testing.T) {
			deployment := func(annotations map[string]string, paused bool) *appsv1.Deployment {
				d := &appsv1.Deployment{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}}
				d.Name, d.Namespace, d.Annotations, d.Spec.Paused = "web", "shop", maps.Clone(annotations), paused
				return d
			}
			resource := kinds["Deployment"].resource
			got := keeperOf(t, withPresets, resource).admit(t, &request{
				resource: resource, user: "kim", old: deployment(tt.before, tt.before != nil), new: deployment(tt.written, tt.paused),
			})
			if diff := cmp.Diff(withoutEmpty(asJSON(t, deployment(tt.after, tt.paused)).Object), withoutEmpty(asJSON(t, got).Object)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			set := &appsv1.StatefulSet{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "StatefulSet"}}
			before, resource := set.DeepCopy(), kinds["StatefulSet"].resource // which has no pause
			before.Annotations = on(record.ConfigHashAnnotation, "h")
			kept := keeperOf(t, withPresets, resource).admit(t, &request{resource: resource, user: "kim", old: before, new: set})
			if diff := cmp.Diff(before.Annotations, asJSON(t, kept).GetAnnotations()); diff != "" {
				t.Errorf("a StatefulSet (-want +got):\n%s", diff)
			}
		})
	}
}

// withoutEmpty removes empty annotations, which typed objects do not have.
func withoutEmpty(o map[string]any) map[string]any {
	for _, path := range [][]string{{"metadata", "annotations"}, {"spec", "template", "metadata", "annotations"}} {
		if all, found, _ := unstructured.NestedMap(o, path...); found && len(all) == 0 {
			unstructured.RemoveNestedField(o, path...)
		}
	}
	return o
}

// The largest workloads cost a small part of the budget that kube-apiserver has for an expression.
func TestAnnotations_CostIsBounded(t *testing.T) {
	for name, test := range map[string]struct{ annotations, containers, variables int }{
		"many annotations":                {annotations: 1500},
		"many containers":                 {containers: 1000, variables: 1},
		"many variables of one container": {containers: 1, variables: 5000},
		"the largest that etcd takes":     {annotations: 250, containers: 100, variables: 50},
	} {
		t.Run(name, func(t *testing.T) {
			old := &appsv1.Deployment{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}}
			old.Annotations, old.Spec.Template.Annotations = map[string]string{}, map[string]string{}
			for n := range test.annotations {
				old.Annotations[fmt.Sprint(n)], old.Spec.Template.Annotations[fmt.Sprint(n)] = strings.Repeat("x", 60), strings.Repeat("x", 60)
			}
			for n := range test.containers {
				c := corev1.Container{Name: fmt.Sprintf("%063d", n), Image: strings.Repeat("x", 100)}
				for v := range test.variables {
					c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprint("V", v), Value: strings.Repeat("x", 100)})
				}
				old.Spec.Template.Spec.Containers = append(old.Spec.Template.Spec.Containers, c)
			}
			now := old.DeepCopy()
			old.Annotations[record.ConfigHashAnnotation], old.Spec.Template.Annotations[record.ConfigHashAnnotation] = "x", "x"
			k := keeperOf(t, withPresets, kinds["Deployment"].resource)
			for what, r := range map[string]*request{"typed": {old: old, new: now}, "as JSON": {old: asJSON(t, old), new: asJSON(t, now)}} {
				r.resource, r.user = kinds["Deployment"].resource, "kim"
				a := r.attributes()
				asked := cel.CreateAdmissionRequest(a, metav1.GroupVersionResource(r.resource), metav1.GroupVersionKind(a.VersionedKind))
				for _, m := range k.mutations {
					_, left, err := m.ForInput(k.compiler.CreateContext(t.Context()), a, asked, cel.OptionalVariableBindings{}, nil, celconfig.RuntimeCELCostBudget)
					if err != nil {
						t.Fatal(err)
					}
					cost := celconfig.RuntimeCELCostBudget - left
					t.Logf("%s: cost = %d", what, cost)
					if cost > celconfig.PerCallLimit/10 {
						t.Errorf("%s: cost = %d, want at most %d", what, cost, celconfig.PerCallLimit/10)
					}
				}
			}
		})
	}
}
