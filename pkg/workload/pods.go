package workload

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/configdep/configdep/pkg/dependency"
)

// Pods returns the pods of a workload that have not finished. Its selector may select pods of
// others too, such as those of a Job with the same labels.
func Pods(ctx context.Context, client kubernetes.Interface, w *dependency.Workload) ([]corev1.Pod, error) {
	selector, err := metav1.LabelSelectorAsSelector(w.Selector)
	if err != nil {
		return nil, err
	}
	options := metav1.ListOptions{LabelSelector: selector.String()}
	controllers := []types.UID{w.UID}
	if w.Kind == dependency.Deployment {
		sets, err := client.AppsV1().ReplicaSets(w.Namespace).List(ctx, options)
		if err != nil {
			return nil, err
		}
		controllers = nil
		for i := range sets.Items {
			if set := &sets.Items[i]; Controls(w.UID, set) {
				controllers = append(controllers, set.UID)
			}
		}
	}
	pods, err := client.CoreV1().Pods(w.Namespace).List(ctx, options)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool {
		owner := metav1.GetControllerOf(&p)
		finished := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
		return owner == nil || finished || !slices.Contains(controllers, owner.UID)
	}), nil
}

// UIDs returns the UIDs of pods.
func UIDs(pods []corev1.Pod) []types.UID {
	uids := make([]types.UID, len(pods))
	for i := range pods {
		uids[i] = pods[i].UID
	}
	return uids
}

// Controls reports whether an object is controlled by that of a UID.
func Controls(uid types.UID, o metav1.Object) bool {
	owner := metav1.GetControllerOf(o)
	return owner != nil && owner.UID == uid
}
