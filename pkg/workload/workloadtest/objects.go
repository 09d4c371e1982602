// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package workloadtest helps tests that use a fake clientset instead of an API server.
package workloadtest

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/workload"
)

// Client returns a workload.Client that reads and patches the objects of a clientset.
func Client(client kubernetes.Interface) workload.Client {
	return workload.Client{Interface: client, Objects: objects{client}}
}

type objects struct{ client kubernetes.Interface }

// Get implements workload.Objects.
func (c objects) Get(ctx context.Context, k *kind.Kind, namespace, name string) (kind.Object, error) {
	get, list := metav1.GetOptions{}, metav1.ListOptions{FieldSelector: "metadata.name=" + name}
	switch k.Name {
	case "Deployment":
		return c.client.AppsV1().Deployments(namespace).Get(ctx, name, get)
	case "StatefulSet":
		return c.client.AppsV1().StatefulSets(namespace).Get(ctx, name, get)
	case "DaemonSet":
		return c.client.AppsV1().DaemonSets(namespace).Get(ctx, name, get)
	case "ReplicaSet":
		found, err := c.client.AppsV1().ReplicaSets(namespace).List(ctx, list)
		for i := range items(found, err).Items {
			if o := &found.Items[i]; o.Name == name { // fake clientsets ignore field selectors
				return o, nil
			}
		}
		return nil, otherwise(err, k, name)
	case "Job":
		found, err := c.client.BatchV1().Jobs(namespace).List(ctx, list)
		for i := range items(found, err).Items {
			if o := &found.Items[i]; o.Name == name {
				return o, nil
			}
		}
		return nil, otherwise(err, k, name)
	}
	return nil, fmt.Errorf("%s are not read in tests", k.Resource.Resource)
}

// items returns a list, or an empty one after an error.
func items[L any](list *L, err error) *L {
	if err != nil {
		return new(L)
	}
	return list
}

func otherwise(err error, k *kind.Kind, name string) error {
	if err != nil {
		return err
	}
	return apierrors.NewNotFound(k.Resource.GroupResource(), name)
}

// Patch implements workload.Objects.
func (c objects) Patch(ctx context.Context, k *kind.Kind, namespace, name string, typ types.PatchType, data []byte, options metav1.PatchOptions) (metav1.Object, error) {
	switch apps := c.client.AppsV1(); k.Name {
	case "Deployment":
		return apps.Deployments(namespace).Patch(ctx, name, typ, data, options)
	case "StatefulSet":
		return apps.StatefulSets(namespace).Patch(ctx, name, typ, data, options)
	case "DaemonSet":
		return apps.DaemonSets(namespace).Patch(ctx, name, typ, data, options)
	case kind.CronJob:
		return c.client.BatchV1().CronJobs(namespace).Patch(ctx, name, typ, data, options)
	}
	return nil, fmt.Errorf("%s are not patched in tests", k.Resource.Resource)
}
