// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package kind

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/configdep/configdep/pkg/dependency"
)

// ReplicaSet is the name of the kind.
const ReplicaSet dependency.WorkloadKind = "ReplicaSet"

var replicaSet = &Kind{
	Name:          ReplicaSet,
	Resource:      appsv1.SchemeGroupVersion.WithResource("replicasets"),
	LabelSelector: withoutDeployment,
	Hidden:        hasController,
	ListedOnly:    true,
	New:           func() Object { return &appsv1.ReplicaSet{} },
	From: typed(func(o *appsv1.ReplicaSet) *dependency.Object {
		out := &dependency.Object{Meta: &o.ObjectMeta, Template: &o.Spec.Template}
		for i := range o.Status.Conditions {
			if c := &o.Status.Conditions[i]; c.Type == appsv1.ReplicaSetReplicaFailure && c.Status == corev1.ConditionTrue {
				out.Rollout.Words = dependency.Line(c.Message)
			}
		}
		return out
	}),
}
