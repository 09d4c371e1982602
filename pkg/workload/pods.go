package workload

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/configdep/configdep/pkg/dependency"
)

// pageSize is how many objects are read at a time, so that a large workload never is in
// memory as a whole.
const pageSize = 500

// AllPods is a limit of Selection.Each that none reaches. A selector may select any number of pods
// of others, and those that are left out are not known to be of others.
const AllPods = math.MaxInt

// maxRuns bounds the runs of a CronJob that are looked at: their names go into a selector.
const maxRuns = 100

// Selection says which pods belong to a workload, as the API server has it now. Its zero
// value selects none.
type Selection struct {
	// Revision is what the pods of the template that is in force carry in the label
	// pod-template-hash or controller-revision-hash; empty when that is not known, and for
	// kinds that have no revisions.
	Revision string
	// RevisionCreated is when that revision was created: its ReplicaSet or ControllerRevision. After a
	// rollback it is the old one again. Zero: it is not known.
	RevisionCreated time.Time
	// Reused: a Deployment went back to the template, so that its pods may be older than the
	// rollout.
	Reused bool

	namespace string
	options   metav1.ListOptions
	// controllers are the UIDs of the objects that control the pods, and self is the UID of
	// a pod that nothing controls.
	controllers []types.UID
	self        types.UID
}

// Select reads a workload, and what stands between it and its pods. ControllerRevisions are listed
// only if revisions is true: otherwise RevisionCreated of StatefulSets and DaemonSets is not known, nor is
// Revision of DaemonSets. Its errors are those of the API server; a workload that is no longer there, or that
// has been created again, is not found.
func Select(ctx context.Context, client kubernetes.Interface, w *dependency.Workload, revisions bool) (*Selection, error) {
	s := &Selection{namespace: w.Namespace}
	var err error
	switch w.Kind {
	case dependency.Deployment:
		err = s.deployment(ctx, client, w)
	case dependency.StatefulSet:
		err = s.statefulSet(ctx, client, w, revisions)
	case dependency.DaemonSet:
		err = s.daemonSet(ctx, client, w, revisions)
	case dependency.ReplicaSet:
		err = s.replicaSet(ctx, client, w)
	case dependency.Job:
		err = s.job(ctx, client, w)
	case dependency.CronJob:
		err = s.cronJob(ctx, client, w)
	case dependency.Pod:
		s.self, s.options.FieldSelector = w.UID, byName(w.Name)
	default:
		err = fmt.Errorf("the pods of a %s cannot be looked up", w.Kind)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Each calls f for the pods that have not finished, in the order of their names. The pod
// is valid during the call. It reads limit pods at most, of which some may be of others,
// and returns whether there are more.
func (s *Selection) Each(ctx context.Context, client kubernetes.Interface, limit int, f func(*corev1.Pod)) (more bool, err error) {
	if len(s.controllers) == 0 && s.self == "" {
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
			if p := &page.Items[i]; s.includes(p) {
				f(p)
			}
		}
		if page.Continue == "" {
			return false, nil
		}
		read += len(page.Items)
		options.Continue = page.Continue
	}
	return true, nil
}

// includes reports whether a pod is one of the workload and has not finished. A selector may
// select pods of others too, such as those of a Job with the same labels.
func (s *Selection) includes(p *corev1.Pod) bool {
	if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return false
	}
	owner := metav1.GetControllerOf(p)
	if owner == nil {
		return s.self != "" && p.UID == s.self
	}
	return slices.Contains(s.controllers, owner.UID)
}

// OfRevision reports whether a pod is of the template that is in force, or may be.
func (s *Selection) OfRevision(p *corev1.Pod) bool {
	return s.Revision == "" || cmp.Or(p.Labels[appsv1.DefaultDeploymentUniqueLabelKey], p.Labels[appsv1.ControllerRevisionHashLabelKey]) == s.Revision
}

// UIDs returns the UIDs of the pods of a workload that have not finished, most at most. Its errors
// are those of Select.
func UIDs(ctx context.Context, client kubernetes.Interface, w *dependency.Workload, most int) (uids []types.UID, err error) {
	s, err := Select(ctx, client, w, false)
	if err != nil {
		return nil, err
	}
	_, err = s.Each(ctx, client, AllPods, func(p *corev1.Pod) {
		if len(uids) < most {
			uids = append(uids, p.UID)
		}
	})
	return uids, err
}

// of notes the workload that was read. It must be the one that is asked about.
func (s *Selection) of(w *dependency.Workload, o metav1.Object, selector *metav1.LabelSelector) error {
	if o.GetUID() != w.UID {
		return apierrors.NewNotFound(resource(w.Kind), w.Name)
	}
	selects, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return fmt.Errorf("the selector of %s %s/%s: %w", w.Kind, w.Namespace, w.Name, err)
	}
	s.controllers, s.options.LabelSelector = []types.UID{w.UID}, selects.String()
	return nil
}

func (s *Selection) deployment(ctx context.Context, client kubernetes.Interface, w *dependency.Workload) error {
	o, err := client.AppsV1().Deployments(w.Namespace).Get(ctx, w.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if err := s.of(w, o, o.Spec.Selector); err != nil {
		return err
	}
	s.controllers = nil
	const history = "deployment.kubernetes.io/revision-history"
	return eachReplicaSet(ctx, client, o, s.options, func(set *appsv1.ReplicaSet, current bool) {
		s.controllers = append(s.controllers, set.UID)
		if current {
			s.Revision, s.Reused = set.Labels[appsv1.DefaultDeploymentUniqueLabelKey], set.Annotations[history] != ""
			s.RevisionCreated = set.CreationTimestamp.Time
		}
	})
}

func (s *Selection) statefulSet(ctx context.Context, client kubernetes.Interface, w *dependency.Workload, revisions bool) error {
	o, err := client.AppsV1().StatefulSets(w.Namespace).Get(ctx, w.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if err := s.of(w, o, o.Spec.Selector); err != nil || o.Status.ObservedGeneration < o.Generation {
		return err
	}
	if s.Revision = o.Status.UpdateRevision; !revisions {
		return nil
	}
	revision, err := findRevision(ctx, client, o, s.options, func(r *appsv1.ControllerRevision) bool { return r.Name == s.Revision })
	if revision != nil {
		s.RevisionCreated = revision.CreationTimestamp.Time
	}
	return err
}

func (s *Selection) daemonSet(ctx context.Context, client kubernetes.Interface, w *dependency.Workload, revisions bool) error {
	o, err := client.AppsV1().DaemonSets(w.Namespace).Get(ctx, w.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if err := s.of(w, o, o.Spec.Selector); err != nil || !revisions {
		return err
	}
	revision, err := daemonSetRevision(ctx, client, o, s.options)
	if revision != nil {
		s.Revision, s.RevisionCreated = revision.Labels[appsv1.DefaultDaemonSetUniqueLabelKey], revision.CreationTimestamp.Time
	}
	return err
}

func (s *Selection) replicaSet(ctx context.Context, client kubernetes.Interface, w *dependency.Workload) error {
	o, err := find(ctx, w, client.AppsV1().ReplicaSets(w.Namespace).List, func(l *appsv1.ReplicaSetList) []appsv1.ReplicaSet { return l.Items })
	if err != nil {
		return err
	}
	return s.of(w, o, o.Spec.Selector)
}

func (s *Selection) job(ctx context.Context, client kubernetes.Interface, w *dependency.Workload) error {
	o, err := find(ctx, w, client.BatchV1().Jobs(w.Namespace).List, func(l *batchv1.JobList) []batchv1.Job { return l.Items })
	if err != nil {
		return err
	}
	return s.of(w, o, o.Spec.Selector)
}

// cronJob selects the pods of the runs that are under way.
func (s *Selection) cronJob(ctx context.Context, client kubernetes.Interface, w *dependency.Workload) error {
	var runs []string
	jobs := client.BatchV1().Jobs(w.Namespace)
	err := each(ctx, metav1.ListOptions{}, jobs.List, func(l *batchv1.JobList) []batchv1.Job { return l.Items }, func(j *batchv1.Job) {
		owner := metav1.GetControllerOf(j)
		if owner == nil || owner.UID != w.UID || j.Status.CompletionTime != nil || len(runs) == maxRuns {
			return
		}
		s.controllers = append(s.controllers, j.UID)
		runs = append(runs, string(j.UID))
	})
	if err != nil || len(runs) == 0 {
		return err
	}
	requirement, err := labels.NewRequirement(batchv1.ControllerUidLabel, selection.In, runs)
	if err != nil {
		return fmt.Errorf("selecting the runs of %s %s/%s: %w", w.Kind, w.Namespace, w.Name, err)
	}
	s.options.LabelSelector = labels.NewSelector().Add(*requirement).String()
	return nil
}

// Single ReplicaSets, Jobs and Pods are listed by name: the server may list them, as it
// does for its index, and needs no other right.
func byName(name string) string { return "metadata.name=" + name }

// find returns a workload from a list by name.
func find[T any, P interface {
	*T
	metav1.Object
}, L any](ctx context.Context, w *dependency.Workload, list func(context.Context, metav1.ListOptions) (L, error), items func(L) []T) (P, error) {
	page, err := list(ctx, metav1.ListOptions{FieldSelector: byName(w.Name)})
	if err != nil {
		return nil, err
	}
	all := items(page)
	for i := range all {
		if o := P(&all[i]); o.GetName() == w.Name {
			return o, nil
		}
	}
	return nil, apierrors.NewNotFound(resource(w.Kind), w.Name)
}

// each calls f for every object of a list that is read in pages.
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

func resource(kind dependency.WorkloadKind) schema.GroupResource {
	return kind.GroupVersion().WithResource(strings.ToLower(string(kind)) + "s").GroupResource()
}
