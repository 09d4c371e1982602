// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingesttest

import (
	"encoding/json"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/configdep/configdep/pkg/record"
)

// Patch applies a patch of configdep to a Deployment, as the API server does. The patch must be bound to its UID and version.
func Patch(t testing.TB, d *appsv1.Deployment, data []byte) {
	t.Helper()
	var p struct {
		Metadata struct {
			UID             types.UID
			ResourceVersion string
		}
	}
	if err := json.Unmarshal(data, &p); err != nil {
		t.Fatal(err)
	}
	if p.Metadata.UID != d.UID || p.Metadata.ResourceVersion != d.ResourceVersion {
		t.Fatalf("patch %s is not bound to Deployment %s at version %s", data, d.UID, d.ResourceVersion)
	}
	before, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	apply := jsonpatch.MergePatch
	if record.Strategic(data) {
		apply = func(before, data []byte) ([]byte, error) {
			return strategicpatch.StrategicMergePatch(before, data, appsv1.Deployment{})
		}
	}
	after, err := apply(before, data)
	if err != nil {
		t.Fatal(err)
	}
	managed := d.ManagedFields // as they are in memory, so that it can be seen that they have not been changed
	defer func() { d.ManagedFields = managed }()
	*d = appsv1.Deployment{}
	if err := json.Unmarshal(after, d); err != nil {
		t.Fatal(err)
	}
}
