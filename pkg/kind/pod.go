// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package kind

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/configdep/configdep/pkg/dependency"
)

// withoutDeployment selects ReplicaSets by a label that the controller of Deployments sets: those of Deployments are not shown, because the Deployment
// is, and the API server leaves them out.
const withoutDeployment = "!" + appsv1.DefaultDeploymentUniqueLabelKey

// UnfinishedPods is a field selector that leaves out finished pods, which no longer read anything.
const UnfinishedPods = "status.phase!=" + string(corev1.PodSucceeded) + ",status.phase!=" + string(corev1.PodFailed)

// Pod is the name of the kind.
const Pod dependency.WorkloadKind = "Pod"

var pod = &Kind{
	Name:          Pod,
	Resource:      corev1.SchemeGroupVersion.WithResource("pods"),
	FieldSelector: UnfinishedPods,
	Hidden:        hasController,
	ListedOnly:    true,
	New:           func() Object { return &corev1.Pod{} },
	From: typed(func(o *corev1.Pod) *dependency.Object {
		return &dependency.Object{Meta: &o.ObjectMeta, Template: &corev1.PodTemplateSpec{ObjectMeta: o.ObjectMeta, Spec: o.Spec}}
	}),
}
