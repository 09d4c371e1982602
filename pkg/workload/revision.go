package workload

import (
	"context"
	"encoding/json"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/configdep/configdep/pkg/dependency"
)

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

// daemonSetRevision returns the ControllerRevision of the current template of a DaemonSet, or nil as long as
// its controller has not seen it. That is not always the one with the highest number: when a template
// comes back, the controller may not have read yet that it created a revision for the one in between.
func daemonSetRevision(ctx context.Context, client kubernetes.Interface, o *appsv1.DaemonSet, options metav1.ListOptions) (*appsv1.ControllerRevision, error) {
	if o.Status.ObservedGeneration < o.Generation {
		return nil, nil //nolint:nilnil // there is none yet
	}
	return findRevision(ctx, client, o, options, func(r *appsv1.ControllerRevision) bool {
		var patch struct {
			Spec struct{ Template corev1.PodTemplateSpec }
		}
		return json.Unmarshal(r.Data.Raw, &patch) == nil && equality.Semantic.DeepEqual(&patch.Spec.Template, &o.Spec.Template)
	})
}

// findRevision returns the ControllerRevision of a StatefulSet or DaemonSet of which is reports true, or
// nil; of several, the latest.
func findRevision(ctx context.Context, client kubernetes.Interface, o metav1.Object, options metav1.ListOptions,
	is func(*appsv1.ControllerRevision) bool,
) (found *appsv1.ControllerRevision, err error) {
	revisions := client.AppsV1().ControllerRevisions(o.GetNamespace())
	err = each(ctx, options, revisions.List, func(l *appsv1.ControllerRevisionList) []appsv1.ControllerRevision { return l.Items }, func(r *appsv1.ControllerRevision) {
		if metav1.IsControlledBy(r, o) && (found == nil || r.Revision > found.Revision) && is(r) {
			found = r
		}
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}
