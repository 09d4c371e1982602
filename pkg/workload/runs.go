// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/configdep/configdep/pkg/dependency"
)

// maxRuns limits the runs of a CronJob that are returned.
const maxRuns = 100

// Active returns the UIDs of the Jobs of a CronJob that have not finished, at most maxRuns. See Client.WithoutJobs.
func Active(ctx context.Context, client Client, w *dependency.Workload) ([]types.UID, error) {
	find := activeJobs
	if client.WithoutJobs {
		find = jobsInStatus
	}
	active, err := find(ctx, client, w)
	return active[:min(len(active), maxRuns)], err
}

// hasFinished reports whether a Job has completed or failed.
func hasFinished(j *batchv1.Job) bool {
	return j.Status.CompletionTime != nil || slices.ContainsFunc(j.Status.Conditions, func(c batchv1.JobCondition) bool {
		return (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue
	})
}

// activeJobs returns the Jobs of a CronJob that have not finished.
func activeJobs(ctx context.Context, client Client, w *dependency.Workload) (active []types.UID, err error) {
	jobs := client.BatchV1().Jobs(w.Namespace)
	err = Each(ctx, client.Pages, metav1.ListOptions{}, jobs.List, func(l *batchv1.JobList) []batchv1.Job { return l.Items }, func(j *batchv1.Job) (bool, error) {
		if owner := metav1.GetControllerOf(j); owner != nil && owner.UID == w.UID && !hasFinished(j) {
			active = append(active, j.UID)
		}
		return len(active) < maxRuns, nil
	})
	return active, err
}

// jobsInStatus returns the Jobs that the status of a CronJob names, which needs no right on Jobs. Those that a user has
// created from the CronJob are not among them.
func jobsInStatus(ctx context.Context, client Client, w *dependency.Workload) (active []types.UID, err error) {
	found, err := client.BatchV1().CronJobs(w.Namespace).List(ctx, metav1.ListOptions{FieldSelector: byName(w.Name)})
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(found.Items, func(c batchv1.CronJob) bool { return c.UID == w.UID })
	if i < 0 {
		return nil, apierrors.NewNotFound(client.Kinds.Of(w.Kind).Resource.GroupResource(), w.Name)
	}
	for _, job := range found.Items[i].Status.Active {
		active = append(active, job.UID)
	}
	return active, nil
}

// byName returns a field selector. Single CronJobs, ReplicaSets, Jobs and Pods are listed by name: the
// server is authorized to list them, for its index, and then needs no right to get them.
func byName(name string) string { return "metadata.name=" + name }
