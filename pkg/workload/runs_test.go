// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/kind"
)

var report = &dependency.Workload{WorkloadKey: dependency.WorkloadKey{Kind: kind.CronJob, Namespace: "shop", Name: "report"}, UID: "report-uid"}

// Jobs that have failed are not active, although they have no completion time.
func TestActive_LeavesOutFinishedJobs(t *testing.T) {
	run := func(name string, conditions ...batchv1.JobCondition) *batchv1.Job {
		return &batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "shop", Name: name, UID: types.UID(name + "-uid"), OwnerReferences: []metav1.OwnerReference{{UID: "report-uid", Controller: new(true)}},
			},
			Status: batchv1.JobStatus{Conditions: conditions},
		}
	}
	of := func(typ batchv1.JobConditionType, status corev1.ConditionStatus) batchv1.JobCondition {
		return batchv1.JobCondition{Type: typ, Status: status}
	}
	client := Client{Interface: fake.NewClientset(
		run("complete", of(batchv1.JobComplete, corev1.ConditionTrue)), run("failed", of(batchv1.JobFailed, corev1.ConditionTrue)),
		run("active"), run("failing", of(batchv1.JobFailureTarget, corev1.ConditionTrue)), run("resumed", of(batchv1.JobSuspended, corev1.ConditionFalse)),
		run("unfinished", of(batchv1.JobFailed, corev1.ConditionFalse)),
	)}
	got, err := Active(t.Context(), client, report)
	slices.Sort(got)
	if diff := cmp.Diff([]types.UID{"active-uid", "failing-uid", "resumed-uid", "unfinished-uid"}, got); diff != "" || err != nil {
		t.Errorf("active Jobs (-want +got), %v:\n%s", err, diff)
	}
}

// Without the right to list Jobs, the status of a CronJob names its active runs.
func TestActive_WithoutJobs(t *testing.T) {
	cron := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "report", UID: "report-uid"}}
	cron.Status.Active = []corev1.ObjectReference{{UID: "a"}, {UID: "b"}}
	client := Client{Interface: fake.NewClientset(cron), WithoutJobs: true}
	got, err := Active(t.Context(), client, report)
	if diff := cmp.Diff([]types.UID{"a", "b"}, got); diff != "" || err != nil {
		t.Errorf("active Jobs (-want +got), %v:\n%s", err, diff)
	}
	again := *report
	again.UID = "another"
	if _, err := Active(t.Context(), client, &again); !apierrors.IsNotFound(err) {
		t.Errorf("of one that was created again: error %v", err)
	}
}
