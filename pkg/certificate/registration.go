// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"context"
	"encoding/base64"
	"errors"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
)

// Registration makes kube-apiserver call the server, by an APIService that the leader creates once a replica is ready.
//
// The manifests cannot contain it. While an APIService names a Service without a ready replica, discovery fails in part, and
// no namespace can be deleted. One that does not name a Service disturbs nothing, but kube-apiserver never loads the OpenAPI
// documents of an APIService that gets its Service later.
type Registration struct {
	// Name is the name of the APIService.
	Name string
	// Group and Version are those of the API.
	Group, Version string
	// Service is the Service of the server.
	Service Service
	// Ready waits until a replica is ready, before the APIService is created.
	Ready func(context.Context) error
	// Owner returns the object with which the garbage collector deletes the APIService.
	Owner func(context.Context) (metav1.OwnerReference, error)
	// Repaired is called after the leader has undone another client's change of the APIService.
	Repaired func(apiService *unstructured.Unstructured)
}

// Service identifies a port of a Service.
type Service struct {
	Namespace, Name string
	Port            int
}

// Role returns the name of the ClusterRole that owns the APIService.
func (s *Service) Role() string { return s.Name + ":registration" }

func (s *Service) reference() map[string]any {
	return map[string]any{"namespace": s.Namespace, "name": s.Name, "port": int64(s.Port)}
}

func (r *Registration) correct(o *unstructured.Unstructured, bundle []byte) bool {
	if o == nil {
		return false
	}
	service, _, _ := unstructured.NestedMap(o.Object, "spec", "service")
	caBundle, _, _ := unstructured.NestedString(o.Object, "spec", "caBundle")
	insecure, _, _ := unstructured.NestedBool(o.Object, "spec", "insecureSkipTLSVerify")
	owned := slices.ContainsFunc(o.GetOwnerReferences(), func(owner metav1.OwnerReference) bool {
		return owner.Kind == "ClusterRole" && owner.Name == r.Service.Role()
	})
	return reflect.DeepEqual(service, r.Service.reference()) && caBundle == base64.StdEncoding.EncodeToString(bundle) && !insecure && owned
}

// write applies the APIService. RBAC can limit a creation to a name only if it is an apply.
func (r *Registration) write(ctx context.Context, objects dynamic.ResourceInterface, o *unstructured.Unstructured, bundle []byte) (*unstructured.Unstructured, error) {
	reference, err := r.Owner(ctx)
	if err != nil {
		return nil, errors.New("looking for the owner of the APIService: " + err.Error()) // not that the APIService was not found
	}
	owner, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&reference)
	if err != nil {
		return nil, err
	}
	metadata := map[string]any{"name": r.Name, "ownerReferences": []any{owner}}
	if o != nil { // else the leader may undo what it has not seen
		metadata["uid"], metadata["resourceVersion"] = string(o.GetUID()), o.GetResourceVersion()
	}
	return objects.Apply(ctx, r.Name, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": APIServices.GroupVersion().String(), "kind": "APIService",
		"metadata": metadata,
		"spec": map[string]any{
			"group": r.Group, "version": r.Version,
			"service": r.Service.reference(), "caBundle": base64.StdEncoding.EncodeToString(bundle), "insecureSkipTLSVerify": false,
			// Low, so that our short names never take precedence over those of built-in resources.
			"groupPriorityMinimum": int64(100), "versionPriority": int64(15),
		},
	}}, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
}
