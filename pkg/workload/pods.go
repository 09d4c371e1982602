// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/kind"
)

// pageSize is how many objects are read at a time, so that the pods of a large workload are
// never all in memory.
const pageSize = 500

// AllPods is the limit of Selection.Each to read all pods. A lower limit may leave out pods of the
// workload, since a selector may select any number of pods of other workloads.
const AllPods = math.MaxInt

// maxRuns limits the runs of a CronJob whose pods are read: their UIDs go into a selector.
const maxRuns = 100

// Selection selects the pods of a workload, by the current state at the API server. Its zero
// value selects none.
type Selection struct {
	// Revision is the value of the label pod-template-hash or controller-revision-hash on pods
	// with the current template; empty if it is not known, and for kinds without revisions.
	Revision string
	// RevisionCreated is when the ReplicaSet or ControllerRevision of that revision was created. After a
	// rollback, this is the time of the old one. Zero: not known.
	RevisionCreated time.Time
	// Reused: the Deployment was rolled back to this template, so pods may be older than the
	// rollout.
	Reused bool
	// Terminating: the workload is being deleted.
	Terminating bool

	namespace string
	options   metav1.ListOptions
	// controllers are the UIDs of the controllers of the pods, and self is the UID of a pod
	// without a controller.
	controllers []types.UID
	self        types.UID
	// any: pods with any controller belong to the workload.
	any bool
	// revisionLabel is the label whose value is Revision; empty: it is that of apps/v1.
	revisionLabel string
}

// Select reads a workload and its ReplicaSets, ControllerRevisions or Jobs (see Client.WithoutJobs). ControllerRevisions are listed only if
// revisions is true: otherwise RevisionCreated of StatefulSets and DaemonSets is not known, nor is Revision of
// DaemonSets. It returns the errors of the API server, and NotFound if the workload was deleted, even if another
// one with the same name was created since.
func Select(ctx context.Context, client Client, w *dependency.Workload, revisions bool) (*Selection, error) {
	s := &Selection{namespace: w.Namespace}
	k := client.Kinds.Of(w.Kind)
	var err error
	switch {
	case k == nil, w.UnknownPods, k.Traits.UnknownPods:
		err = apierrors.NewBadRequest(fmt.Sprintf("the pods of a %s cannot be looked up", w.Kind))
	case k.Traits.Recurring:
		err = s.runs(ctx, client, w)
	case !k.Selects():
		s.self, s.options.FieldSelector = w.UID, byName(w.Name)
	default:
		err = s.of(ctx, client, k, w, revisions)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Each calls f for the pods that have not finished, ordered by name. The pod is valid only
// during the call. It reads at most limit pods, including pods of other workloads that have
// the same labels, and reports whether there are more.
func (s *Selection) Each(ctx context.Context, client Client, limit int, f func(*corev1.Pod)) (more bool, err error) {
	if len(s.controllers) == 0 && s.self == "" && !s.any {
		return false, nil
	}
	options := s.options
	for read := 0; read < limit; {
		options.Limit = int64(min(pageSize, limit-read))
		page, err := client.CoreV1().Pods(s.namespace).List(ctx, options)
		if err != nil {
			return false, err
		}
		for i := range page.Items {
			if err := ctx.Err(); err != nil { // what is done with a pod may take long
				return false, err
			}
			if p := &page.Items[i]; s.includes(p) {
				f(p)
			}
		}
		if page.Continue == "" {
			return false, nil
		}
		read, options.Continue = read+len(page.Items), page.Continue
	}
	return true, nil
}

// includes reports whether a pod belongs to the workload and has not finished. A selector may
// also select pods of other workloads, such as a Job with the same labels.
func (s *Selection) includes(p *corev1.Pod) bool {
	if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return false
	}
	if s.any {
		return true
	}
	owner := metav1.GetControllerOf(p)
	if owner == nil {
		return s.self != "" && p.UID == s.self
	}
	return slices.Contains(s.controllers, owner.UID)
}

// OfRevision reports whether a pod has, or may have, the current template.
func (s *Selection) OfRevision(p *corev1.Pod) bool {
	if s.Revision != "" && s.revisionLabel != "" {
		return p.Labels[s.revisionLabel] == s.Revision
	}
	return s.Revision == "" || cmp.Or(p.Labels[appsv1.DefaultDeploymentUniqueLabelKey], p.Labels[appsv1.ControllerRevisionHashLabelKey]) == s.Revision
}

// of selects the pods of a workload that has a selector.
func (s *Selection) of(ctx context.Context, client Client, k *kind.Kind, w *dependency.Workload, revisions bool) error {
	o, err := client.Get(ctx, k, w.Namespace, w.Name)
	if err != nil {
		return err
	}
	if o.GetUID() != w.UID {
		return apierrors.NewNotFound(k.Resource.GroupResource(), w.Name)
	}
	s.Terminating = o.GetDeletionTimestamp() != nil
	selector := k.Selector(o)
	if selector == nil { // it selects no pods; as a text, that would be all of them
		return nil
	}
	selects, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return fmt.Errorf("the selector of %s %s/%s: %w", w.Kind, w.Namespace, w.Name, err)
	}
	s.controllers, s.options.LabelSelector = []types.UID{w.UID}, selects.String()
	s.any, s.revisionLabel = k.Traits.PodsByLabels, k.RevisionLabel
	switch k.Revisions {
	case kind.ReplicaSets:
		s.controllers = nil
		return s.replicaSets(ctx, client, k, o)
	case kind.ControllerRevisions:
		return s.controllerRevision(ctx, client, k, o, revisions)
	case kind.NoRevisions:
		s.Revision = k.UpdateRevision(o)
		if k.Traits.Reruns { // its template does not change, so no pod is older than itself
			s.RevisionCreated = o.GetCreationTimestamp().Time
		}
	}
	return nil
}

// histories are annotations of a ReplicaSet that was the current one before: those of a Deployment, and of a Rollout of Argo.
var histories = []string{"deployment.kubernetes.io/revision-history", "rollout.argoproj.io/revision-history"}

// replicaSets selects the pods of the ReplicaSets of a workload.
func (s *Selection) replicaSets(ctx context.Context, client Client, k *kind.Kind, o kind.Object) error {
	current := k.Current(o)
	label := cmp.Or(k.RevisionLabel, appsv1.DefaultDeploymentUniqueLabelKey)
	sets := client.AppsV1().ReplicaSets(s.namespace)
	return each(ctx, s.options, sets.List, func(l *appsv1.ReplicaSetList) []appsv1.ReplicaSet { return l.Items }, func(set *appsv1.ReplicaSet) {
		if !metav1.IsControlledBy(set, o) {
			return
		}
		s.controllers = append(s.controllers, set.UID)
		if current != nil && current(set, nil) {
			s.Revision, s.Reused = set.Labels[label], slices.ContainsFunc(histories, func(h string) bool { return set.Annotations[h] != "" })
			s.RevisionCreated = set.CreationTimestamp.Time
		}
	})
}

// controllerRevision finds the ControllerRevision of the current template; if there are several, the latest.
func (s *Selection) controllerRevision(ctx context.Context, client Client, k *kind.Kind, o kind.Object, revisions bool) error {
	current := k.Current(o)
	if current == nil {
		return nil
	}
	if s.Revision = k.UpdateRevision(o); !revisions {
		return nil
	}
	var found *appsv1.ControllerRevision
	all := client.AppsV1().ControllerRevisions(s.namespace)
	err := each(ctx, s.options, all.List, func(l *appsv1.ControllerRevisionList) []appsv1.ControllerRevision { return l.Items }, func(r *appsv1.ControllerRevision) {
		if metav1.IsControlledBy(r, o) && (found == nil || r.Revision > found.Revision) && current(r, r.Data.Raw) {
			found = r
		}
	})
	if err != nil || found == nil {
		return err
	}
	s.RevisionCreated = found.CreationTimestamp.Time
	if s.Revision == "" {
		s.Revision = found.Labels[appsv1.ControllerRevisionHashLabelKey]
	}
	return nil
}

// runs selects the pods of the active runs of a workload.
func (s *Selection) runs(ctx context.Context, client Client, w *dependency.Workload) error {
	active, err := Active(ctx, client, w)
	if err != nil || len(active) == 0 {
		return err
	}
	runs := make([]string, len(active))
	for i, uid := range active {
		runs[i] = string(uid)
	}
	requirement, err := labels.NewRequirement(batchv1.ControllerUidLabel, selection.In, runs)
	if err != nil {
		return fmt.Errorf("selecting the runs of %s %s/%s: %w", w.Kind, w.Namespace, w.Name, err)
	}
	s.controllers, s.options.LabelSelector = active, labels.NewSelector().Add(*requirement).String()
	return nil
}

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
	err = each(ctx, metav1.ListOptions{}, jobs.List, func(l *batchv1.JobList) []batchv1.Job { return l.Items }, func(j *batchv1.Job) {
		if owner := metav1.GetControllerOf(j); owner != nil && owner.UID == w.UID && !hasFinished(j) && len(active) < maxRuns {
			active = append(active, j.UID)
		}
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

// each lists objects in pages, and calls f for each.
func each[T any, L interface{ GetContinue() string }](
	ctx context.Context, options metav1.ListOptions, list func(context.Context, metav1.ListOptions) (L, error), items func(L) []T, f func(*T),
) error {
	options.Limit = pageSize
	for {
		page, err := list(ctx, options)
		if err != nil {
			return err
		}
		all := items(page)
		for i := range all {
			f(&all[i])
		}
		if options.Continue = page.GetContinue(); options.Continue == "" {
			return nil
		}
	}
}
