// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingesttest

import (
	"encoding/json"
	"fmt"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/record"
)

// Patch applies a patch of configdep to a Deployment, as the API server does. The patch must be bound to its UID and version.
func Patch(t testing.TB, d *appsv1.Deployment, data []byte) {
	t.Helper()
	before, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	after, bound, err := apply(before, data)
	if err != nil {
		t.Fatal(err)
	}
	if bound.UID != d.UID || bound.ResourceVersion != d.ResourceVersion {
		t.Fatalf("patch %s is not bound to Deployment %s at version %s", data, d.UID, d.ResourceVersion)
	}
	managed := d.ManagedFields // as they are in memory, so that it can be seen that they have not been changed
	defer func() { d.ManagedFields = managed }()
	*d = appsv1.Deployment{}
	if err := json.Unmarshal(after, d); err != nil {
		t.Fatal(err)
	}
}

// apply applies a patch to an object. It also returns to which UID and version the patch is bound.
func apply(before, data []byte) (after []byte, bound metav1.ObjectMeta, err error) {
	var p struct{ Metadata metav1.ObjectMeta }
	if !record.IsJSONPatch(data) {
		if err := json.Unmarshal(data, &p); err != nil {
			return nil, bound, err
		}
		after, err = jsonpatch.MergePatch(before, data)
		return after, p.Metadata, err
	}
	operations, err := jsonpatch.DecodePatch(data)
	if err != nil || len(operations) == 0 || operations[0].Kind() != "test" { // of the version: no two objects have the same
		return nil, bound, fmt.Errorf("a patch without a test: %w", err)
	}
	if err := json.Unmarshal(before, &p); err != nil {
		return nil, bound, err
	}
	after, err = operations.Apply(before)
	return after, p.Metadata, err
}
