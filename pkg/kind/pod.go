// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package kind

import (
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/configdep/configdep/pkg/dependency"
)

// Selectors by labels that controllers set on their ReplicaSets and Pods. Objects with such a label are not shown,
// because their Deployment, StatefulSet, DaemonSet or Job is. The API server leaves them out, so their churn, which is
// most of the writes in a cluster, costs nothing.
const (
	withoutDeployment = "!" + appsv1.DefaultDeploymentUniqueLabelKey
	withoutController = withoutDeployment + ",!" + appsv1.ControllerRevisionHashLabelKey + ",!" + batchv1.ControllerUidLabel
	// unfinished leaves out finished pods, which no longer read anything.
	unfinished = "status.phase!=" + string(corev1.PodSucceeded) + ",status.phase!=" + string(corev1.PodFailed)
)

// Pod is the name of the kind.
const Pod dependency.WorkloadKind = "Pod"

var pod = &Kind{
	Name:          Pod,
	Resource:      corev1.SchemeGroupVersion.WithResource("pods"),
	LabelSelector: withoutController,
	FieldSelector: unfinished,
	Hidden:        hasController,
	ListedOnly:    true,
	New:           func() Object { return &corev1.Pod{} },
	From: typed(func(o *corev1.Pod) *dependency.Object {
		return &dependency.Object{Meta: &o.ObjectMeta, Template: &corev1.PodTemplateSpec{ObjectMeta: o.ObjectMeta, Spec: o.Spec}}
	}),
}
