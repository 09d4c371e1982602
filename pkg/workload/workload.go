// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package workload reads and patches live workloads, and finds their pods and revisions. It is for
// callers that are about to change a workload: the index may be a moment behind.
package workload

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/policy"
)

// Patch sends a JSON merge patch to a workload whose pods can be restarted and returns
// the metadata of the result. Its errors are those of the API server.
func Patch(ctx context.Context, objects Objects, key dependency.WorkloadKey, data []byte, dryRun []string) (metav1.Object, error) {
	k, err := rollable(key.Kind)
	if err != nil {
		return nil, err
	}
	return objects.Patch(ctx, k, key.Namespace, key.Name, data, metav1.PatchOptions{FieldManager: policy.FieldManager, DryRun: dryRun})
}

// Live is a workload as the API server has it now.
type Live struct {
	*dependency.Workload
	Generation int64
	kind.Progress
}

// Get reads a workload whose pods can be restarted. Its errors are those of the API server.
func Get(ctx context.Context, objects Objects, key dependency.WorkloadKey) (*Live, error) {
	k, err := rollable(key.Kind)
	if err != nil {
		return nil, err
	}
	o, err := objects.Get(ctx, k, key.Namespace, key.Name)
	if err != nil {
		return nil, err
	}
	read, err := k.Read(o)
	if err != nil {
		return nil, err
	}
	if read == nil {
		return nil, apierrors.NewNotFound(k.Resource.GroupResource(), key.Name)
	}
	return &Live{policy.ReadWorkload(read), o.GetGeneration(), k.Progress(o)}, nil
}

func rollable(name dependency.WorkloadKind) (*kind.Kind, error) {
	if k := kind.Of(name); k != nil && k.Traits.Rollable {
		return k, nil
	}
	return nil, fmt.Errorf("a %s cannot be restarted", name)
}
