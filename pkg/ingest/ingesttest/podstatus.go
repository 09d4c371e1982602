// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingesttest

import (
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// PodStatus returns what the Secrets Store CSI driver writes for a pod that has mounted a SecretProviderClass: the objects of the
// store, each with its version.
func PodStatus(pod, class string, pairs ...string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "secrets-store.csi.x-k8s.io/v1", "kind": "SecretProviderClassPodStatus",
	}}
	o.SetName(pod + "-" + Namespace + "-" + class)
	objects := []any{}
	for i := 0; i < len(pairs); i += 2 {
		objects = append(objects, map[string]any{"id": pairs[i], "version": pairs[i+1]})
	}
	o.Object["status"] = map[string]any{"podName": pod, "secretProviderClassName": class, "mounted": true, "objects": objects}
	return o
}

// changedStatus counts a write to a status as a generation, as the API server does where there is no subresource for the status,
// and reports whether the object has one.
func (c *Cluster) changedStatus(old, o Object) bool {
	before, ok := old.(*unstructured.Unstructured)
	if !ok {
		return false
	}
	o.SetGeneration(old.GetGeneration())
	if !reflect.DeepEqual(before.Object["status"], o.(*unstructured.Unstructured).Object["status"]) {
		o.SetGeneration(old.GetGeneration() + 1)
		o.SetManagedFields(c.Managed(`{"f:status":{}}`))
	}
	return true
}
