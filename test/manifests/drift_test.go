// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// Helm and kustomize install the same objects: the chart with the values in its ci folder is equal to the base and
// the overlays, except for the differences that are listed here.
func TestChartAndKustomizeSayTheSame(t *testing.T) {
	for kustomize, chart := range map[string]string{
		"base.yaml":                      "chart-default.yaml",
		"overlay-cert-manager.yaml":      "chart-cert-manager.yaml",
		"overlay-existing-secret.yaml":   "chart-existing-secret.yaml",
		"overlay-secrets-only.yaml":      "chart-secrets-only.yaml",
		"overlay-single-namespace.yaml":  "chart-single-namespace.yaml",
		"overlay-configmaps-only.yaml":   "chart-configmaps-only.yaml",
		"overlay-high-availability.yaml": "chart-high-availability.yaml",
		"overlay-notifications.yaml":     "chart-notifications.yaml",
		"overlay-in-place.yaml":          "chart-in-place.yaml",
		"overlay-network-policy.yaml":    "chart-network-policy.yaml",
		"overlay-recreate.yaml":          "chart-recreate.yaml",
		"overlay-reload-jobs.yaml":       "chart-reload-jobs.yaml",
		"overlay-without-revisions.yaml": "chart-without-revisions.yaml",
		"overlay-without-webhook.yaml":   "chart-without-webhook.yaml",
		"monitoring.yaml":                "chart-monitoring.yaml",
	} {
		t.Run(chart, func(t *testing.T) {
			want, got := unlabelled(t, kustomize), unlabelled(t, chart)
			if kustomize == "monitoring.yaml" { // which is applied in addition to the base
				maps.Copy(want, unlabelled(t, "base.yaml"))
			}
			// Helm creates the namespace of a release itself (--create-namespace).
			delete(want, objectKey{"Namespace", "", namespace})
			// These overlays add a role; the chart adds the rule to an existing role.
			switch chart {
			case "chart-single-namespace.yaml":
				fold(t, want, "Role", name+":secrets", name)
			case "chart-configmaps-only.yaml":
				fold(t, want, "Role", name+":own-secrets", name)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("- kustomize (%s), + chart (%s):\n%s", kustomize, chart, diff)
			}
		})
	}
}

// unlabelled reads a rendered file, without the labels that depend on the tool.
func unlabelled(t *testing.T, file string) map[objectKey]map[string]any {
	t.Helper()
	objects := map[objectKey]map[string]any{}
	for key, o := range rendered(t, file) {
		labels := o.GetLabels()
		for _, label := range []string{"helm.sh/chart", "app.kubernetes.io/managed-by", "app.kubernetes.io/instance", "app.kubernetes.io/version"} {
			delete(labels, label)
		}
		if labels["app.kubernetes.io/name"] == name { // kustomize sets it only where a selector needs it
			delete(labels, "app.kubernetes.io/name")
		}
		o.SetLabels(labels)
		unstructured.RemoveNestedField(o.Object, "metadata", "annotations", "helm.sh/resource-policy")
		if len(o.GetAnnotations()) == 0 {
			o.SetAnnotations(nil)
		}
		if key.kind == "NetworkPolicy" { // an empty list means the same as no list, and the API server drops it
			policy := &networkingv1.NetworkPolicy{}
			convert(t, o, policy)
			typed, err := runtime.DefaultUnstructuredConverter.ToUnstructured(policy)
			if err != nil {
				t.Fatal(err)
			}
			o.Object = typed
		}
		unstructured.RemoveNestedField(o.Object, "spec", "template", "metadata", "labels", "app.kubernetes.io/instance")
		objects[key] = o.Object
	}
	return objects
}

// fold adds the rules of one role to another, and removes the first role and its binding.
func fold(t *testing.T, objects map[objectKey]map[string]any, kind, from, to string) {
	t.Helper()
	source, target := objectKey{kind, namespace, from}, objectKey{kind, namespace, to}
	more, _, _ := unstructured.NestedSlice(objects[source], "rules")
	if len(more) != 1 || objects[target] == nil {
		t.Fatalf("%v has %d rules, want 1", source, len(more))
	}
	rules, _, _ := unstructured.NestedSlice(objects[target], "rules")
	// In the chart, it follows the other rule for Secrets.
	rules = append(rules[:1:1], append(more, rules[1:]...)...)
	objects[target]["rules"] = rules
	delete(objects, source)
	delete(objects, objectKey{kind + "Binding", namespace, from})
}
