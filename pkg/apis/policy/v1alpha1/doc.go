// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// +k8s:deepcopy-gen=package
// +groupName=policy.configdep.io

// Package v1alpha1 holds the types of policy.configdep.io/v1alpha1: ReloadPolicy, a custom resource by which a platform limits automatic restarts.
//
// The package imports apimachinery alone, so that clients can vendor it.
package v1alpha1
