// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package hop

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	configdepv1alpha1 "github.com/configdep/configdep/pkg/generated/clientset/versioned/typed/configdep/v1alpha1"
)

// List returns all objects, by namespace/name.
func List(ctx context.Context, client configdepv1alpha1.ConfigdepV1alpha1Interface) (map[string]*v1alpha1.ConfigDependency, error) {
	list, err := client.ConfigDependencies("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	out := map[string]*v1alpha1.ConfigDependency{}
	for i := range list.Items {
		out[list.Items[i].Namespace+"/"+list.Items[i].Name] = &list.Items[i]
	}
	return out, nil
}

// Diff returns the differences between two sets of objects as an error. Versions are ignored, because each
// replica has its own.
func Diff(want, got map[string]*v1alpha1.ConfigDependency) error {
	var wrong []string
	for _, key := range slices.Sorted(maps.Keys(want)) {
		switch a, b := want[key], got[key]; {
		case b == nil:
			wrong = append(wrong, key+" is missing")
		case !equality.Semantic.DeepEqual(content(a), content(b)):
			wrong = append(wrong, fmt.Sprintf("%s at version %s differs from version %s (-want +got):\n%s\n", key, b.ResourceVersion, a.ResourceVersion, cmp.Diff(content(a), content(b))))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(got)) {
		if want[key] == nil {
			wrong = append(wrong, fmt.Sprintf("%s at version %s is unexpected", key, got[key].ResourceVersion))
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	return fmt.Errorf("%d differences in %d expected objects: %s", len(wrong), len(want), strings.Join(wrong[:min(3, len(wrong))], "; "))
}

func content(o *v1alpha1.ConfigDependency) *v1alpha1.ConfigDependency {
	c := *o
	c.ResourceVersion, c.TypeMeta = "", metav1.TypeMeta{}
	return &c
}

// Check returns the first difference between objects and the existing workloads and sources as an error.
func (c *Churn) Check(ctx context.Context, views map[string]*v1alpha1.ConfigDependency) error {
	versions := map[string]string{} // of sources
	for _, r := range sourceResources {
		err := c.each(ctx, r, func(o *unstructured.Unstructured) error {
			versions[r.kind+" "+o.GetNamespace()+"/"+o.GetName()] = o.GetResourceVersion()
			return nil
		})
		if err != nil {
			return err
		}
	}
	there := map[string]bool{}
	for _, r := range workloadResources {
		err := c.each(ctx, r, func(o *unstructured.Unstructured) error {
			key := o.GetNamespace() + "/" + strings.ToLower(r.kind) + "." + o.GetName()
			there[key] = true
			if err := shows(views[key], o, versions); err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	for key, view := range views {
		if !there[key] && slices.Contains(c.namespaces, view.Namespace) {
			return fmt.Errorf("%s is shown but does not exist", key)
		}
	}
	return nil
}

// each calls f for each object of a resource in the Churn's namespaces.
func (c *Churn) each(ctx context.Context, r resource, f func(*unstructured.Unstructured) error) error {
	for _, n := range c.namespaces {
		list, err := c.client.Resource(r.GroupVersionResource).Namespace(n).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range list.Items {
			if err := f(&list.Items[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// shows returns an error if a view does not match its workload.
func shows(view *v1alpha1.ConfigDependency, workload *unstructured.Unstructured, versions map[string]string) error {
	switch {
	case view == nil:
		return fmt.Errorf("the workload is not shown")
	case view.Spec.WorkloadRef.UID != workload.GetUID():
		return fmt.Errorf("UID = %s, want %s", view.Spec.WorkloadRef.UID, workload.GetUID())
	case !maps.Equal(view.Labels, workload.GetLabels()):
		return fmt.Errorf("labels = %v, want %v", view.Labels, workload.GetLabels())
	}
	want, err := references(workload)
	if err != nil {
		return err
	}
	got := map[string]string{}
	for _, s := range view.Status.Sources {
		got[string(s.Kind)+" "+view.Namespace+"/"+s.Name] = s.ResourceVersion
	}
	for s := range want {
		want[s] = versions[s]
	}
	if !maps.Equal(want, got) {
		return fmt.Errorf("sources = %v, want %v", got, want)
	}
	return nil
}

// references returns the sources that a workload of a Churn uses.
func references(workload *unstructured.Unstructured) (map[string]string, error) {
	path := []string{"spec", "template", "spec", "containers"}
	if workload.GetKind() == "CronJob" {
		path = append([]string{"spec", "jobTemplate"}, path...)
	}
	containers, _, err := unstructured.NestedSlice(workload.Object, path...)
	if err != nil || len(containers) != 1 {
		return nil, fmt.Errorf("the workload has %d containers, want 1: %w", len(containers), err)
	}
	from, _, err := unstructured.NestedSlice(containers[0].(map[string]any), "envFrom")
	out := map[string]string{}
	for _, f := range from {
		for ref, kind := range map[string]string{"secretRef": "Secret", "configMapRef": "ConfigMap"} {
			if name, found, _ := unstructured.NestedString(f.(map[string]any), ref, "name"); found {
				out[kind+" "+workload.GetNamespace()+"/"+name] = ""
			}
		}
	}
	return out, err
}
