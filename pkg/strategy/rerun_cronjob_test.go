// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package strategy

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/configdep/configdep/pkg/record"
)

func report() *batchv1.CronJob {
	return &batchv1.CronJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: "report", UID: "uid-report", ResourceVersion: "7", Annotations: map[string]string{"reloader.stakater.com/auto": "true"}},
		Spec: batchv1.CronJobSpec{
			JobTemplate: batchv1.JobTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "report"}, Annotations: map[string]string{"note": "x"}},
				Spec:       batchv1.JobSpec{BackoffLimit: new(int32(4))},
			},
		},
	}
}

func runs(name string, status batchv1.JobStatus) *batchv1.Job {
	return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: name, UID: types.UID("uid-" + name), OwnerReferences: []metav1.OwnerReference{{
		APIVersion: "batch/v1", Kind: "CronJob", Name: "report", UID: "uid-report", Controller: new(true),
	}}}, Status: status}
}

func TestRerun_StartsARun(t *testing.T) {
	present := record.Record{Hash: "v1.k.b"}
	cron := report()
	name := record.RunName(newJobsAPI(t).read(cron), present)
	want := runs(name, batchv1.JobStatus{})
	want.Labels, want.Annotations = map[string]string{"app": "report"}, map[string]string{"note": "x", "cronjob.kubernetes.io/instantiate": "manual"}
	want.Spec = cron.Spec.JobTemplate.Spec
	finished := func(t batchv1.JobConditionType) batchv1.JobStatus {
		return batchv1.JobStatus{Conditions: []batchv1.JobCondition{{Type: t, Status: corev1.ConditionTrue}}}
	}
	waits := Next{After: pause, Waits: "a run is active, and the concurrencyPolicy is not Allow"}
	for what, tt := range map[string]struct {
		policy  batchv1.ConcurrencyPolicy
		jobs    []runtime.Object
		change  func(*batchv1.CronJob)
		started bool
		next    Next
		err     string
	}{
		"none is active":                     {started: true},
		"one is active":                      {jobs: []runtime.Object{runs("other", batchv1.JobStatus{})}, started: true},
		"Allow, one is active":               {policy: batchv1.AllowConcurrent, jobs: []runtime.Object{runs("other", batchv1.JobStatus{})}, started: true},
		"Forbid, none is active":             {policy: batchv1.ForbidConcurrent, started: true},
		"Forbid, one is active":              {policy: batchv1.ForbidConcurrent, jobs: []runtime.Object{runs("other", batchv1.JobStatus{})}, next: waits},
		"Replace, one is active":             {policy: batchv1.ReplaceConcurrent, jobs: []runtime.Object{runs("other", batchv1.JobStatus{})}, next: waits},
		"Forbid, one has completed":          {policy: batchv1.ForbidConcurrent, jobs: []runtime.Object{runs("other", finished(batchv1.JobComplete))}, started: true},
		"Forbid, one has failed":             {policy: batchv1.ForbidConcurrent, jobs: []runtime.Object{runs("other", finished(batchv1.JobFailed))}, started: true},
		"it exists":                          {jobs: []runtime.Object{runs(name, batchv1.JobStatus{})}},
		"Forbid, it exists and is active":    {policy: batchv1.ForbidConcurrent, jobs: []runtime.Object{runs(name, batchv1.JobStatus{})}},
		"another Job has the name":           {jobs: []runtime.Object{&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: name}}}, err: "exists, and is not of CronJob report"},
		"the CronJob has changed":            {change: func(o *batchv1.CronJob) { o.ResourceVersion = "8" }, err: "it has changed since it was read"},
		"the CronJob has been created again": {change: func(o *batchv1.CronJob) { o.UID = "other" }, err: "it has changed since it was read"},
	} {
		t.Run(what, func(t *testing.T) {
			cron := report()
			cron.Spec.ConcurrencyPolicy = tt.policy
			live := cron.DeepCopy()
			if tt.change != nil {
				tt.change(live)
			}
			a := newJobsAPI(t, append(tt.jobs, live)...)
			next, err := Of(record.Rerun).Begin(t.Context(), a.Client, &Beginning{Workload: a.read(cron), Present: present})
			if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) || next != tt.next {
				t.Errorf("next = %+v, %v, want %+v, %q", next, err, tt.next, tt.err)
			}
			if got := a.took(); tt.started != slices.Equal(got, []string{"create " + name}) || !tt.started && len(got) > 0 {
				t.Errorf("writes = %v, started: %v", got, tt.started)
			}
			if !tt.started {
				return
			}
			if diff := cmp.Diff(want, a.job(name), fromServer); diff != "" {
				t.Errorf("Job (-want +got):\n%s", diff)
			}
		})
	}
}

// The creation of the Job of a CronJob is refused, or made by another replica at the same time.
func TestRerun_RunIsRefused(t *testing.T) {
	present := record.Record{Hash: "v1.k.b"}
	for name, tt := range map[string]struct {
		err  error
		next Next
		want func(error) bool
	}{
		"by a quota":                          {apierrors.NewForbidden(batchv1.Resource("jobs"), "", errors.New("exceeded quota")), Next{}, apierrors.IsForbidden},
		"because another replica is creating": {apierrors.NewAlreadyExists(batchv1.Resource("jobs"), ""), Next{After: soon}, func(err error) bool { return err == nil }},
	} {
		a := newJobsAPI(t, report())
		a.refuse = func(string) error { return tt.err }
		next, err := Of(record.Rerun).Begin(t.Context(), a.Client, &Beginning{Workload: a.read(report()), Present: present})
		if !tt.want(err) || next.After != tt.next.After {
			t.Errorf("%s: next = %+v, %v", name, next, err)
		}
	}
	a := newJobsAPI(t)
	if next, err := Of(record.Rerun).Begin(t.Context(), a.Client, &Beginning{Workload: a.read(seed()), Present: present}); err != nil || next != (Next{}) || len(a.took()) > 0 {
		t.Errorf("a Job: next = %+v, %v", next, err)
	}
}
