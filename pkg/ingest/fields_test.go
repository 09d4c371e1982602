// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
)

// Managers own a field of an object if they have set it there. One that writes the status, which a controller may do as a whole, owns none.
func TestFieldsOf_Owners(t *testing.T) {
	const owned = `{"f:spec":{"f:key":{}}}`
	for name, tt := range map[string]struct {
		entry metav1.ManagedFieldsEntry
		owner string
		own   bool
	}{
		"another manager":           {metav1.ManagedFieldsEntry{Manager: "kubectl", FieldsV1: metav1.NewFieldsV1(owned)}, "kubectl", false},
		"configdep":                 {metav1.ManagedFieldsEntry{Manager: record.FieldsManager, FieldsV1: metav1.NewFieldsV1(owned)}, "", true},
		"a manager of the status":   {metav1.ManagedFieldsEntry{Manager: "operator", Subresource: "status", FieldsV1: metav1.NewFieldsV1(owned)}, "", false},
		"a manager of other fields": {metav1.ManagedFieldsEntry{Manager: "kubectl", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:other":{}}}`)}, "", false},
		"a manager of nothing":      {metav1.ManagedFieldsEntry{Manager: "kubectl"}, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			m := &metav1.ObjectMeta{UID: "u", Annotations: map[string]string{policy.FieldsAnnotation: "spec.key = secret/db#key"}, ManagedFields: []metav1.ManagedFieldsEntry{tt.entry}}
			got := fieldsOf(dependency.NewDigester(make([]byte, 32)), []byte(`{"spec":{"key":"x"}}`), m).States["spec.key"]
			if got.Owner != tt.owner || got.Own != tt.own {
				t.Errorf("state = %+v, want owner %q, own: %t", got, tt.owner, tt.own)
			}
		})
	}
}
