package controller

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/workload"
)

// inspectPause is how long to wait until pods can be looked up, when nothing that happens to
// the workload makes us look earlier.
const inspectPause = 5 * time.Second

// inspect looks up whether a container of the current template was started while content was
// other than now. It returns nil while the controller of the workload has yet to see the
// template: its status tells of that.
func (c *Controller) inspect(ctx context.Context, s *step) (*policy.Inspection, error) {
	w := s.workload
	if w.Rollout.Reason == dependency.ReasonNotObserved {
		return nil, nil //nolint:nilnil // nothing can be found out yet
	}
	pods, err := c.podsOf(ctx, w)
	if err != nil {
		return nil, err
	}
	if w.Kind == dependency.Deployment {
		set, err := c.currentReplicaSet(ctx, w)
		if err != nil || set == nil {
			return nil, err
		}
		const history = "deployment.kubernetes.io/revision-history"
		if w.Revision != w.RevisionBefore && set.Annotations[history] == "" {
			// The ReplicaSet was made for the template, so that all of its pods are newer.
			s.Excursions = slices.DeleteFunc(s.Excursions, func(x policy.Excursion) bool { return x.OlderPods })
		}
		pods = slices.DeleteFunc(pods, func(p corev1.Pod) bool { return !workload.Controls(set.UID, &p) })
	}
	return policy.InspectPods(s.Excursions, pods), nil
}

// currentReplicaSet returns the ReplicaSet of the template, or nil while there is none.
func (c *Controller) currentReplicaSet(ctx context.Context, w *dependency.Workload) (*appsv1.ReplicaSet, error) {
	selector, err := metav1.LabelSelectorAsSelector(w.Selector)
	if err != nil {
		return nil, err
	}
	sets, err := c.Client.AppsV1().ReplicaSets(w.Namespace).List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil {
		return nil, fmt.Errorf("listing the ReplicaSets of %s %s/%s: %w", w.Kind, w.Namespace, w.Name, err)
	}
	for i := range sets.Items {
		set := &sets.Items[i]
		if workload.Controls(w.UID, set) && set.Annotations[dependency.RevisionAnnotation] == w.Revision {
			return set, nil
		}
	}
	return nil, nil //nolint:nilnil // its controller has yet to make it
}
