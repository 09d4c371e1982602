// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// +k8s:deepcopy-gen=package
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=io.configdep.v1alpha1
// +groupName=configdep.io

// Package v1alpha1 holds the types of configdep.io/v1alpha1.
//
// A ConfigDependency is computed from a live workload and from the ConfigMaps and
// Secrets that it consumes. It is read-only: it is never stored, and no request
// writes it. A Reload is the body of the create-only subresource "reload", an Approval
// that of the create-only subresource "approval", and ConfigDependencyPods is the answer of the
// read-only subresource "pods".
//
// The package imports apimachinery alone, so that clients can vendor it.
package v1alpha1
