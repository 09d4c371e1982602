// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"encoding/json"
	"fmt"
	"strings"
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

// What says why there are no pods is passed on in one line, which is not too long.
func TestWords(t *testing.T) {
	const failed, quota = `{"type":"ReplicaFailure","status":"True","message":%q}`, `pods "web-1" is forbidden: exceeded quota: pods, requested: pods=1`
	of := func(k *Kind, condition string) string {
		t.Helper()
		raw := []byte(`{"status":{"conditions":[{"type":"Other","status":"True","message":"other"},` + condition + `]}}`)
		o := k.New()
		var err error
		if k.layout != nil {
			o, err = k.Decode(raw)
		} else {
			err = json.Unmarshal(raw, o)
		}
		if err != nil {
			t.Fatal(err)
		}
		read, err := k.Read(o)
		if err != nil {
			t.Fatal(err)
		}
		return read.Rollout.Words
	}
	custom := harbor()
	custom.Status = &StatusPaths{Failed: []StatusTest{{Path: ".status.phase", Value: "Bad"}, {Condition: "Ready", Status: "False"}}}
	for name, tt := range map[string]struct {
		kind      *Kind
		condition string
		want      string
	}{
		"a quota":                     {deployment, fmt.Sprintf(failed, quota), quota},
		"it is over":                  {deployment, `{"type":"ReplicaFailure","status":"False","message":"x"}`, ""},
		"no ReplicaSet":               {deployment, `{"type":"Progressing","status":"False","reason":"ReplicaSetCreateError","message":"refused by a webhook"}`, "refused by a webhook"},
		"the deadline has passed":     {deployment, `{"type":"Progressing","status":"False","reason":"ProgressDeadlineExceeded","message":"x"}`, ""},
		"a ReplicaSet":                {replicaSet, fmt.Sprintf(failed, quota), quota},
		"a ReplicaSet, it is over":    {replicaSet, `{"type":"ReplicaFailure","status":"False","message":"x"}`, ""},
		"several lines":               {deployment, `{"type":"ReplicaFailure","status":"True","message":" refused:\n\tno\r\n\u001b[31mred\u202e "}`, "refused: no [31mred"},
		"long":                        {deployment, fmt.Sprintf(failed, strings.Repeat("ö", 300)), strings.Repeat("ö", 254) + "…"},
		"a custom resource":           {mustNew(t, custom), `{"type":"Ready","status":"False","message":"no\nimage"}`, "no image"},
		"a custom resource, no words": {mustNew(t, custom), `{"type":"Ready","status":"False"}`, ""},
		"a custom resource is well":   {mustNew(t, custom), `{"type":"Ready","status":"True","message":"fine"}`, ""},
	} {
		if got := of(tt.kind, tt.condition); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
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
