// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/kind"
)

// Client reads and patches live workloads, and what strategies need besides.
type Client struct {
	kubernetes.Interface
	Objects
	// Kinds are the kinds of workloads.
	Kinds kind.Table
	// WithoutJobs: the server may not list Jobs. The active runs of a CronJob are then those that its status names.
	WithoutJobs bool
	// Pages are those that lists of it may have in memory.
	Pages Pages
}

// Key returns the key of the workload that a reference names.
func (c Client) Key(apiVersion, kind, namespace, name string) dependency.WorkloadKey {
	return c.Kinds.Key(apiVersion, kind, namespace, name)
}

// Objects reads and patches workloads. It returns the errors of the API server.
type Objects interface {
	// Get returns the current state of a workload.
	Get(ctx context.Context, k *kind.Kind, namespace, name string) (kind.Object, error)
	// Patch sends a patch to a workload, and returns the metadata of the result.
	Patch(ctx context.Context, k *kind.Kind, namespace, name string, typ types.PatchType, data []byte, options metav1.PatchOptions) (metav1.Object, error)
}

// NewClient returns a Client for a configuration. It does no I/O.
func NewClient(config *rest.Config, client kubernetes.Interface) (Client, error) {
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return Client{}, fmt.Errorf("creating a client: %w", err)
	}
	patches, err := metadata.NewForConfig(config)
	if err != nil {
		return Client{}, fmt.Errorf("creating a client: %w", err)
	}
	silent := rest.CopyConfig(config)
	silent.WarningHandler, silent.WarningHandlerWithContext = rest.NoWarnings{}, nil
	quiet, err := metadata.NewForConfig(silent)
	if err != nil {
		return Client{}, fmt.Errorf("creating a client: %w", err)
	}
	return Client{Interface: client, Objects: live{objects, patches, quiet}, Pages: NewPages()}, nil
}

// live implements Objects. Patches ask for only the metadata in the response, as callers use nothing else.
type live struct {
	objects dynamic.Interface
	patches metadata.Interface
	quiet   metadata.Interface // logs no warnings of the API server
}

// Get implements Objects.
func (l live) Get(ctx context.Context, k *kind.Kind, namespace, name string) (kind.Object, error) {
	resource := l.objects.Resource(k.Served()).Namespace(namespace)
	var found runtime.Unstructured
	if k.ListedOnly {
		list, err := resource.List(ctx, metav1.ListOptions{FieldSelector: byName(name)})
		if err != nil {
			return nil, err
		}
		if len(list.Items) == 0 {
			return nil, apierrors.NewNotFound(k.Resource.GroupResource(), name)
		}
		found = &list.Items[0]
	} else {
		o, err := resource.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		found = o
	}
	if k.Decode != nil {
		raw, err := found.(interface{ MarshalJSON() ([]byte, error) }).MarshalJSON()
		if err != nil {
			return nil, fmt.Errorf("reading %s %s/%s: %w", k.Name, namespace, name, err)
		}
		return k.Decode(raw)
	}
	o := k.New()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(found.UnstructuredContent(), o); err != nil {
		return nil, fmt.Errorf("reading %s %s/%s: %w", k.Name, namespace, name, err)
	}
	return o, nil
}

// Patch implements Objects.
func (l live) Patch(ctx context.Context, k *kind.Kind, namespace, name string, typ types.PatchType, data []byte, options metav1.PatchOptions) (metav1.Object, error) {
	patches := l.patches
	if k.Traits.Fields { // a warning, such as that of an admission webhook, may quote values
		patches = l.quiet
	}
	return patches.Resource(k.Served()).Namespace(namespace).Patch(ctx, name, typ, data, options)
}
