// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"encoding/json"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/configdep/configdep/pkg/apis/policy/v1alpha1"
	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/limit"
	"github.com/configdep/configdep/pkg/record"
)

// policyPause is the time between looks whether the statuses of ReloadPolicies say what holds.
const policyPause = 2 * time.Second

// tellPolicies keeps the statuses of ReloadPolicies until the context is done.
func (s *Server) tellPolicies(ctx context.Context) {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		var all []*limit.Policy
		s.index.Read(func(now decide.Evaluator) { all = now.Limits().All() })
		for _, p := range all {
			if p.Told || ctx.Err() != nil {
				continue
			}
			if err := s.tellPolicy(ctx, p); err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) && ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "Writing the status of a ReloadPolicy failed, will retry", "policy", p.Name)
			}
		}
	}, policyPause)
}

func (s *Server) tellPolicy(ctx context.Context, p *limit.Policy) error {
	c := p.Condition(metav1.Now())
	data, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": p.UID, "resourceVersion": p.ResourceVersion},
		"status":   v1alpha1.ReloadPolicyStatus{ObservedGeneration: p.Generation, Conditions: []metav1.Condition{c}},
	})
	if err != nil {
		return err
	}
	_, err = s.config.policies.Patch(ctx, p.Name, types.MergePatchType, data, metav1.PatchOptions{FieldManager: record.FieldManager}, "status")
	return err
}
