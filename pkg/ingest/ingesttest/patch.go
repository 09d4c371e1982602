// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingesttest

import (
	"encoding/json"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Patch applies a merge patch of configdep to a Deployment. The patch must be bound to the UID and the version,
// and otherwise contain only annotations, of the Deployment and its pod template.
func Patch(t testing.TB, d *appsv1.Deployment, data []byte) {
	t.Helper()
	var p struct {
		Metadata struct {
			UID             types.UID
			ResourceVersion string
			Annotations     map[string]*string
		}
		Spec struct {
			Template struct {
				Metadata struct{ Annotations map[string]*string }
			}
		}
	}
	if err := json.Unmarshal(data, &p); err != nil {
		t.Fatal(err)
	}
	if p.Metadata.UID != d.UID || p.Metadata.ResourceVersion != d.ResourceVersion {
		t.Fatalf("patch %s is not bound to Deployment %s at version %s", data, d.UID, d.ResourceVersion)
	}
	merge(&d.Annotations, p.Metadata.Annotations)
	merge(&d.Spec.Template.Annotations, p.Spec.Template.Metadata.Annotations)
}

func merge(into *map[string]string, changes map[string]*string) {
	for k, v := range changes {
		switch {
		case v == nil:
			delete(*into, k)
		case *into == nil:
			*into = map[string]string{k: *v}
		default:
			(*into)[k] = *v
		}
	}
}
