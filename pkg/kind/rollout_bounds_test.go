// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/configdep/configdep/pkg/dependency"
)

// A rollout has failed only if its deadline has passed.
func TestDeploymentRollout_FailsAtItsDeadlineOnly(t *testing.T) {
	for _, tt := range []struct {
		status corev1.ConditionStatus
		reason string
		want   dependency.RolloutPhase
	}{
		{corev1.ConditionFalse, "ProgressDeadlineExceeded", dependency.RolloutFailed},
		{corev1.ConditionTrue, "ProgressDeadlineExceeded", dependency.RolloutRunning},
		{corev1.ConditionUnknown, "ProgressDeadlineExceeded", dependency.RolloutRunning},
		{corev1.ConditionFalse, "FailedCreate", dependency.RolloutRunning},
	} {
		o := &appsv1.Deployment{Status: appsv1.DeploymentStatus{
			Conditions: []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Status: tt.status, Reason: tt.reason}},
		}}
		if got := deploymentRollout(o).Phase; got != tt.want {
			t.Errorf("condition %s, %s: phase = %s, want %s", tt.status, tt.reason, got, tt.want)
		}
	}
}

// A StatefulSet without a partition updates all of its pods.
func TestStatefulSetRollout_WithoutAPartition(t *testing.T) {
	for _, rolling := range []*appsv1.RollingUpdateStatefulSetStrategy{nil, {}, {Partition: new(int32(0))}} {
		o := &appsv1.StatefulSet{
			Spec:   appsv1.StatefulSetSpec{Replicas: new(int32(3)), UpdateStrategy: appsv1.StatefulSetUpdateStrategy{RollingUpdate: rolling}},
			Status: appsv1.StatefulSetStatus{ReadyReplicas: 3, UpdatedReplicas: 2},
		}
		if got := statefulSetRollout(o); got != (dependency.Rollout{Phase: dependency.RolloutRunning, Reason: "PodsUpdating", Message: "2 of 3 pods are up to date"}) {
			t.Errorf("rolling update %+v: rollout = %+v", rolling, got)
		}
	}
}
