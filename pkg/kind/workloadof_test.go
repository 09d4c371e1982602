// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package kind_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/kind"
)

func TestWorkloadOf(t *testing.T) {
	all, err := kind.NewTable([]string{"argo-rollout"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		apiVersion, kind, owner string // of its controller
		labels                  map[string]string
		want                    string // empty: none
		uid                     bool
	}{
		"a pod by itself":                {"", "", "", nil, "Pod web-1", true},
		"of a Deployment":                {"apps/v1", "ReplicaSet", "web-6d4f", map[string]string{"pod-template-hash": "6d4f"}, "Deployment web", false},
		"of a ReplicaSet":                {"apps/v1", "ReplicaSet", "web-6d4f", nil, "ReplicaSet web-6d4f", true},
		"of a ReplicaSet, with a label":  {"apps/v1", "ReplicaSet", "web", map[string]string{"pod-template-hash": "6d4f"}, "ReplicaSet web", true},
		"of a ReplicaSet, label empty":   {"apps/v1", "ReplicaSet", "web-", map[string]string{"pod-template-hash": ""}, "ReplicaSet web-", true},
		"of a Rollout":                   {"apps/v1", "ReplicaSet", "web-77", map[string]string{"rollouts-pod-template-hash": "77"}, "Rollout web", false},
		"of a StatefulSet":               {"apps/v1", "StatefulSet", "db", map[string]string{"controller-revision-hash": "db-1"}, "StatefulSet db", true},
		"of a Job":                       {"batch/v1", "Job", "report-1", nil, "Job report-1", true},
		"of a kind that is not known":    {"example.com/v1", "Shop", "web", nil, "", false},
		"of a kind in another API group": {"example.com/v1", "StatefulSet", "web", nil, "", false},
		"of no API version":              {"a/b/c", "StatefulSet", "web", nil, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1", UID: "pod", Labels: tt.labels}}
			uid := "pod"
			if tt.kind != "" {
				pod.OwnerReferences = []metav1.OwnerReference{
					{APIVersion: "v1", Kind: "ConfigMap", Name: "other"}, {APIVersion: tt.apiVersion, Kind: tt.kind, Name: tt.owner, UID: "owner", Controller: new(true)},
				}
				uid = "owner"
			}
			key, got, found := all.WorkloadOf(pod)
			text := ""
			if found {
				text = string(key.Kind) + " " + key.Name
			}
			if text != tt.want || found && key.Namespace != "shop" || tt.uid != (string(got) == uid) || !tt.uid && got != "" {
				t.Errorf("%v with UID %q, found = %v; want %s", key, got, found, tt.want)
			}
		})
	}
}
