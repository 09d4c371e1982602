// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package strategy

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/policy"
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
		"some":                   {managers: []string{"kubectl", policy.FieldsManager}, version: "6", removes: "/metadata/managedFields/1"},
		"all":                    {managers: []string{policy.FieldsManager}, version: "6", removes: `"value":[{}]`},
		"it has changed":         {managers: []string{"kubectl", policy.FieldsManager}, refuses: testFails, conflict: true},
		"a policy refuses it":    {managers: []string{"kubectl", policy.FieldsManager}, refuses: policyDenies},
		"the server has trouble": {managers: []string{"kubectl", policy.FieldsManager}, refuses: apierrors.NewInternalError(context.DeadlineExceeded)},
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
