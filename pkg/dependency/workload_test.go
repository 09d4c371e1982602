// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func workloadMeta() metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u", ResourceVersion: "7", CreationTimestamp: at(1)}
}

// The last write of the template by any client is an upper bound of its last change.
func TestNewWorkload_TemplateWritten(t *testing.T) {
	entry := func(minute int, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Time: new(at(minute)), FieldsV1: metav1.NewFieldsV1(fields)}
	}
	const template = `{"f:spec":{"f:template":{"f:spec":{}}}}`
	for name, tt := range map[string]struct {
		fields []metav1.ManagedFieldsEntry
		want   int
	}{
		"no managed fields":                          {nil, 1},
		"written by the manager that created it":     {[]metav1.ManagedFieldsEntry{entry(5, template)}, 5},
		"the latest of several managers":             {[]metav1.ManagedFieldsEntry{entry(5, template), entry(9, template), entry(7, template)}, 9},
		"writes of replicas and status do not count": {[]metav1.ManagedFieldsEntry{entry(5, template), entry(9, `{"f:spec":{"f:replicas":{}}}`), entry(9, `{"f:status":{}}`)}, 5},
		"an entry without fields is ignored":         {[]metav1.ManagedFieldsEntry{{Time: new(at(5))}}, 1},
		"an entry without a time is ignored":         {[]metav1.ManagedFieldsEntry{{FieldsV1: metav1.NewFieldsV1(template)}}, 1},
		"a time before the creation is ignored":      {[]metav1.ManagedFieldsEntry{entry(0, template)}, 1},
	} {
		o := &appsv1.DaemonSet{ObjectMeta: workloadMeta()}
		o.ManagedFields = tt.fields
		if got := readDaemonSet(o).TemplateWritten; !got.Equal(at(tt.want).Time) {
			t.Errorf("%s: %v, want %v", name, got, at(tt.want))
		}
	}
}
