package workload

import (
	"context"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/configdep/configdep/pkg/dependency"
)

// RevisionCreated returns when the revision of the current template of a workload was created: its
// ReplicaSet or ControllerRevision. It is zero if there is none yet, and for a Deployment that is
// another one by now. After a rollback, the revision is the old one again. Errors are those of the
// API server.
func RevisionCreated(ctx context.Context, client kubernetes.Interface, w *dependency.Workload) (created time.Time, err error) {
	selector, err := metav1.LabelSelectorAsSelector(w.Selector)
	if err != nil {
		return time.Time{}, nil
	}
	options := metav1.ListOptions{LabelSelector: selector.String()}
	if w.Kind != dependency.Deployment {
		owner := &metav1.ObjectMeta{Namespace: w.Namespace, UID: w.UID}
		revision, err := newestRevision(ctx, client, owner, options)
		if revision == nil {
			return time.Time{}, err
		}
		return revision.CreationTimestamp.Time, nil
	}
	o, err := client.AppsV1().Deployments(w.Namespace).Get(ctx, w.Name, metav1.GetOptions{})
	if err != nil || o.UID != w.UID {
		return time.Time{}, err
	}
	err = eachReplicaSet(ctx, client, o, options, func(set *appsv1.ReplicaSet, current bool) {
		if current {
			created = set.CreationTimestamp.Time
		}
	})
	return created, err
}

// eachReplicaSet calls f for the ReplicaSets of a Deployment, and says which is that of the current
// template: none as long as the Deployment controller has not seen it.
func eachReplicaSet(ctx context.Context, client kubernetes.Interface, o *appsv1.Deployment, options metav1.ListOptions,
	f func(set *appsv1.ReplicaSet, current bool),
) error {
	revision := o.Annotations[dependency.RevisionAnnotation]
	observed := o.Status.ObservedGeneration >= o.Generation && revision != ""
	sets := client.AppsV1().ReplicaSets(o.Namespace)
	return each(ctx, options, sets.List, func(l *appsv1.ReplicaSetList) []appsv1.ReplicaSet { return l.Items }, func(set *appsv1.ReplicaSet) {
		if metav1.IsControlledBy(set, o) {
			f(set, observed && set.Annotations[dependency.RevisionAnnotation] == revision)
		}
	})
}

// newestRevision returns the last ControllerRevision of a StatefulSet or DaemonSet, or nil.
func newestRevision(ctx context.Context, client kubernetes.Interface, o metav1.Object, options metav1.ListOptions) (newest *appsv1.ControllerRevision, err error) {
	revisions := client.AppsV1().ControllerRevisions(o.GetNamespace())
	err = each(ctx, options, revisions.List, func(l *appsv1.ControllerRevisionList) []appsv1.ControllerRevision { return l.Items }, func(r *appsv1.ControllerRevision) {
		if metav1.IsControlledBy(r, o) && (newest == nil || r.Revision > newest.Revision) {
			newest = r
		}
	})
	if err != nil {
		return nil, err
	}
	return newest, nil
}
