package controller

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
)

// revisionIsNewer looks up whether the pods of the current template were all made after
// the content was last written: its revision was created in a later second. It is asked
// after a time in which no replica looked, when both have changed. If in doubt, they were not.
// It returns nil while the controller of the workload has yet to see the template: its status
// tells of that.
func (c *Controller) revisionIsNewer(ctx context.Context, s *step) (*policy.Verification, error) {
	w := s.workload
	found := &policy.Verification{WrittenAt: s.WrittenAt, StartedBy: w.StartedBy}
	if w.Rollout.Reason == dependency.ReasonNotObserved {
		return nil, nil //nolint:nilnil // it is not known yet
	}
	selector, err := metav1.LabelSelectorAsSelector(w.Selector)
	if err != nil {
		return found, nil
	}
	options := metav1.ListOptions{LabelSelector: selector.String()}
	var created time.Time
	if w.Kind == dependency.Deployment {
		created, err = c.replicaSetCreated(ctx, w, options)
	} else {
		created, err = c.controllerRevisionCreated(ctx, w, options)
	}
	if err != nil {
		return nil, fmt.Errorf("looking up the revision of %s %s/%s: %w", w.Kind, w.Namespace, w.Name, err)
	}
	found.Newer = created.After(s.WrittenAt)
	return found, nil
}

// replicaSetCreated returns when the ReplicaSet of the current template was created, or
// zero. A rollback uses an old one again, which is then too old to count.
func (c *Controller) replicaSetCreated(ctx context.Context, w *dependency.Workload, options metav1.ListOptions) (time.Time, error) {
	deployment, err := c.Client.AppsV1().Deployments(w.Namespace).Get(ctx, w.Name, metav1.GetOptions{})
	if err != nil {
		return time.Time{}, err
	}
	if deployment.UID != w.UID || deployment.Status.ObservedGeneration < deployment.Generation {
		return time.Time{}, nil
	}
	sets, err := c.Client.AppsV1().ReplicaSets(w.Namespace).List(ctx, options)
	if err != nil {
		return time.Time{}, err
	}
	for i := range sets.Items {
		set := &sets.Items[i]
		if controls(w.UID, set) && set.Annotations[dependency.RevisionAnnotation] == deployment.Annotations[dependency.RevisionAnnotation] {
			return set.CreationTimestamp.Time, nil
		}
	}
	return time.Time{}, nil
}

// controllerRevisionCreated returns when the ControllerRevision of the current template
// was created, or zero.
func (c *Controller) controllerRevisionCreated(ctx context.Context, w *dependency.Workload, options metav1.ListOptions) (time.Time, error) {
	revisions, err := c.Client.AppsV1().ControllerRevisions(w.Namespace).List(ctx, options)
	if err != nil {
		return time.Time{}, err
	}
	var newest *appsv1.ControllerRevision
	for i := range revisions.Items {
		r := &revisions.Items[i]
		if controls(w.UID, r) && (newest == nil || r.Revision > newest.Revision) {
			newest = r
		}
	}
	if newest == nil {
		return time.Time{}, nil
	}
	return newest.CreationTimestamp.Time, nil
}

func controls(uid types.UID, o metav1.Object) bool {
	owner := metav1.GetControllerOf(o)
	return owner != nil && owner.UID == uid
}
