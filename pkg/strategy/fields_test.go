// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package strategy

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"

	"github.com/configdep/configdep/pkg/dependency"
	setfields "github.com/configdep/configdep/pkg/fields"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
	"github.com/configdep/configdep/pkg/workload"
)

// store is an API server with one object. It answers patches with an error, if there is one.
type store struct {
	managers []string
	refuses  error
	patches  []string
}

func (s *store) Get(_ context.Context, k *kind.Kind, namespace, name string) (kind.Object, error) {
	o := k.New()
	o.SetNamespace(namespace)
	o.SetName(name)
	o.SetUID("u")
	o.SetResourceVersion("5")
	for _, m := range s.managers {
		o.SetManagedFields(append(o.GetManagedFields(), metav1.ManagedFieldsEntry{Manager: m}))
	}
	return o, nil
}

func (s *store) Patch(_ context.Context, _ *kind.Kind, _, _ string, _ types.PatchType, data []byte, _ metav1.PatchOptions) (metav1.Object, error) {
	s.patches = append(s.patches, string(data))
	return &metav1.ObjectMeta{ResourceVersion: "6"}, s.refuses
}

// Fields in pod templates are never set, wherever the kind has them: a pod template can refer to the Secret.
func TestFields_InPodTemplates(t *testing.T) {
	k, errs := kind.New(kind.Descriptor{
		Group: "goharbor.io", Kind: "Harbor", Resource: "harbors", Versions: []string{"v1"}, Reload: kind.Reload{By: kind.ByAnnotation}, Fields: true,
		PodTemplates: []kind.TemplatePath{{Path: ".spec.core.template"}, {Path: ".spec.jobs[*].template"}, {Path: ".spec['a.b']"}},
	}, nil)
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "settings"}, Data: map[string]string{"x": "y"}}
	w := &dependency.Workload{WorkloadKey: dependency.WorkloadKey{Kind: k.Name, Namespace: "shop", Name: "web"}, UID: "u", ResourceVersion: "5"}
	for path, refused := range map[string]bool{
		"spec.core.template":                       true,
		"spec.core.template.spec.hostname":         true,
		"spec.core['template'].spec.hostname":      true,
		"spec.jobs[name=a].template.spec.hostname": true,
		"spec.jobs.a.template.spec.hostname":       true, // of a map
		"spec['a.b'].spec.hostname":                true,
		"spec.core.templates":                      false,
		"spec.template.spec.hostname":              false,
		"spec.jobs[name=a].name2":                  false,
		"spec.core[name=a].template":               false,
		"spec.a.b":                                 false,
	} {
		assignments, err := setfields.Parse(path + " = configmap/settings#x")
		if err != nil {
			t.Fatal(err)
		}
		if got := unsettable(k, assignments) != ""; got != refused {
			t.Errorf("%s is in a pod template: %v", path, got)
		}
		if !refused {
			continue
		}
		s := &store{}
		f := NewFields(workload.Client{Interface: fake.NewClientset(settings), Objects: s, Kinds: kind.Table{k}}, clock.RealClock{})
		set, err := f.Set(t.Context(), w, assignments, false)
		if err != nil || !strings.Contains(set.Problem, "is in a pod template, whose fields are never set") || len(s.patches) > 0 {
			t.Errorf("%s: %+v, error %v, patches %v", path, set, err, s.patches)
		}
	}
}

// Fields that configdep itself reads are never set: a view or an event would show the value, for example as the name of a Secret that is
// missing. Fields that restart the workload are its own.
func TestFields_InUse(t *testing.T) {
	k, errs := kind.New(kind.Descriptor{
		Group: "goharbor.io", Kind: "Harbor", Resource: "harbors", Versions: []string{"v1"}, Fields: true,
		Reload: kind.Reload{By: kind.ByField, Path: ".spec.restartedAt"},
		Sources: []kind.SourceFields{
			{Kind: dependency.Secret, Name: ".spec.passwordRef"},
			{Kind: dependency.Secret, Name: ".spec.extra[*].name", Key: ".spec.extra[*].key", Namespace: ".spec.extra[*].in"},
		},
		Pods: &kind.Pods{}, RestartAt: true,
		TemplateFrom: &kind.TemplateFrom{APIVersion: ".spec.ref.apiVersion", Kind: ".spec.ref.kind", Name: ".spec.ref.name"},
		Status:       &kind.StatusPaths{Replicas: ".spec.replicas"},
	}, nil)
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	consents := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "bucket", Annotations: map[string]string{policy.AllowFieldsAnnotation: "harbor/*#x"}},
		Data:       map[string][]byte{"x": []byte("value")},
	}
	w := &dependency.Workload{WorkloadKey: dependency.WorkloadKey{Kind: k.Name, Namespace: "shop", Name: "web"}, UID: "u", ResourceVersion: "5"}
	for path, refused := range map[string]bool{
		"spec.passwordRef":       true,
		"spec.passwordRef.x":     true,
		"spec['passwordRef']":    true,
		"spec.extra[id=1].name":  true,
		"spec.extra[id=1].key":   true,
		"spec.extra.any.in":      true, // of a map
		"spec.ref.name":          true,
		"spec.replicas":          true,
		"spec.restartedAt":       true,
		"spec.restartAt":         true,
		"spec.passwordRef2":      false,
		"spec.extra[id=1].value": false,
		"spec[passwordRef=a].b":  false,
		"spec.ref.other":         false,
		"spec.restarted":         false,
	} {
		assignments, err := setfields.Parse(path + " = secret/bucket#x")
		if err != nil {
			t.Fatal(err)
		}
		if got := unsettable(k, assignments) != ""; got != refused {
			t.Errorf("%s cannot be set: %v", path, got)
		}
		if !refused {
			continue
		}
		s := &store{}
		f := NewFields(workload.Client{Interface: fake.NewClientset(consents), Objects: s, Kinds: kind.Table{k}}, clock.RealClock{})
		set, err := f.Set(t.Context(), w, assignments, false)
		if err != nil || !strings.Contains(set.Problem, path+" is a field that configdep itself uses") && path != "spec['passwordRef']" || len(s.patches) > 0 {
			t.Errorf("%s: %+v, error %v, patches %v", path, set, err, s.patches)
		}
	}
}

// Otherwise a user who may write a ConfigMap and a custom resource could use up the memory of the server: 32 fields may get the same
// value, and be applied again and again.
func TestFields_ValuesAreBounded(t *testing.T) {
	k, errs := kind.New(kind.Descriptor{
		Group: "goharbor.io", Kind: "Harbor", Resource: "harbors", Versions: []string{"v1"}, Reload: kind.Reload{By: kind.ByAnnotation}, Fields: true,
	}, nil)
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	const part = setfields.MaxValues / setfields.MaxAssignments
	settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "settings"}, Data: map[string]string{
		"part": strings.Repeat("<", part), "more": strings.Repeat("<", part+1), "all": strings.Repeat("<", 1<<20),
	}}
	other := settings.DeepCopy()
	other.Name = "other"
	w := &dependency.Workload{WorkloadKey: dependency.WorkloadKey{Kind: k.Name, Namespace: "shop", Name: "web"}, UID: "u", ResourceVersion: "5"}
	for key, problem := range map[string]string{
		"part": "", "more": "spec.f31, from the key more of ConfigMap other: all values together have more than 524288 bytes",
		"all": "spec.f0, from the key all of ConfigMap settings: all values together",
	} {
		var lines []string
		for i := range setfields.MaxAssignments {
			lines = append(lines, fmt.Sprintf("spec.f%d = configmap/%s#%s", i, []string{"settings", "other"}[i%2], key))
		}
		assignments, err := setfields.Parse(strings.Join(lines, "\n"))
		if err != nil {
			t.Fatal(err)
		}
		f := NewFields(workload.Client{Interface: fake.NewClientset(settings, other), Kinds: kind.Table{k}}, clock.RealClock{})
		values, got, err := f.values(t.Context(), w, assignments)
		if err != nil || !strings.Contains(got, problem) || (got == "") != (problem == "") {
			t.Errorf("%s: problem %q, error %v, want %q", key, got, err, problem)
		}
		for i := range values {
			if values[i].Assignment != &assignments[i] || len(values[i].Value.(string)) != part {
				t.Errorf("%s: the value of field %d is of %v", key, i, values[i].Assignment)
			}
		}
	}
}

// A patch that is refused because the object has changed is not confused with one that a policy of the cluster refuses: that is told to
// users, without the text.
func TestFields_Release(t *testing.T) {
	const marker = "m4rk3r"
	k, errs := kind.New(kind.Descriptor{
		Group: "goharbor.io", Kind: "Harbor", Resource: "harbors", Versions: []string{"v1"}, Reload: kind.Reload{By: kind.ByAnnotation}, Fields: true,
	}, nil)
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	policyDenies := apierrors.NewForbidden(schema.GroupResource{}, "web", nil)
	policyDenies.ErrStatus.Reason, policyDenies.ErrStatus.Code = metav1.StatusReasonInvalid, http.StatusUnprocessableEntity
	policyDenies.ErrStatus.Details.Causes = []metav1.StatusCause{{Message: marker}}
	testFails := apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", "test failed", 0, false)
	for name, tt := range map[string]struct {
		managers []string
		refuses  error
		version  string // of the workload after that
		removes  string
		conflict bool
	}{
		"nothing is owned":       {managers: []string{"kubectl"}, version: "5"},
		"some":                   {managers: []string{"kubectl", record.FieldsManager}, version: "6", removes: "/metadata/managedFields/1"},
		"all":                    {managers: []string{record.FieldsManager}, version: "6", removes: `"value":[{}]`},
		"it has changed":         {managers: []string{"kubectl", record.FieldsManager}, refuses: testFails, conflict: true},
		"a policy refuses it":    {managers: []string{"kubectl", record.FieldsManager}, refuses: policyDenies},
		"the server has trouble": {managers: []string{"kubectl", record.FieldsManager}, refuses: apierrors.NewInternalError(context.DeadlineExceeded)},
	} {
		t.Run(name, func(t *testing.T) {
			s := &store{managers: tt.managers, refuses: tt.refuses}
			f := NewFields(workload.Client{Objects: s, Kinds: kind.Table{k}}, clock.RealClock{})
			w := &dependency.Workload{WorkloadKey: dependency.WorkloadKey{Kind: k.Name, Namespace: "shop", Name: "web"}, UID: "u", ResourceVersion: "5"}
			version, err := f.Release(t.Context(), w)
			if version != tt.version || (err != nil) != (tt.refuses != nil) || apierrors.IsConflict(err) != tt.conflict {
				t.Errorf("version %q, error %v", version, err)
			}
			if err != nil && strings.Contains(err.Error(), marker) {
				t.Errorf("the error quotes the answer: %v", err)
			}
			sent := strings.Join(s.patches, " ")
			if !strings.Contains(sent, tt.removes) || (sent == "") != (tt.version == "5") {
				t.Errorf("patches = %s", sent)
			}
			if sent != "" && !json.Valid([]byte(sent)) {
				t.Errorf("the patch is no JSON: %s", sent)
			}
		})
	}
}

// Consent is read again together with the value, for each key: it may have been withdrawn since the decision.
func TestFields_WithoutConsent(t *testing.T) {
	k, errs := kind.New(kind.Descriptor{
		Group: "goharbor.io", Kind: "Harbor", Resource: "harbors", Versions: []string{"v1"}, Reload: kind.Reload{By: kind.ByAnnotation}, Fields: true,
	}, nil)
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	bucket := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "bucket", Annotations: map[string]string{policy.AllowFieldsAnnotation: "harbor/web#accessKey"}},
		Data:       map[string][]byte{"accessKey": []byte("value"), "rootPassword": []byte("value")},
	}
	w := &dependency.Workload{WorkloadKey: dependency.WorkloadKey{Kind: k.Name, Namespace: "shop", Name: "web"}, UID: "u", ResourceVersion: "5"}
	f := NewFields(workload.Client{Interface: fake.NewClientset(bucket), Kinds: kind.Table{k}}, clock.RealClock{})
	for lines, want := range map[string]string{
		"spec.a = secret/bucket#accessKey":                                      "",
		"spec.a = secret/bucket#accessKey\nspec.b = secret/bucket#rootPassword": "Secret bucket does not allow it for the key rootPassword (configdep.io/allow-fields)",
	} {
		assignments, err := setfields.Parse(lines)
		if err != nil {
			t.Fatal(err)
		}
		if values, problem, err := f.values(t.Context(), w, assignments); err != nil || problem != want || (want == "") != (len(values) == 1) {
			t.Errorf("%s: %d values, problem %q, error %v", lines, len(values), problem, err)
		}
	}
}
