package reload

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/configdep/configdep/pkg/dependency"
)

// live is a workload as the API server has it now.
type live struct {
	*dependency.Workload
	generation int64
	// caveat tells why new pods may not come at once, as a clause; empty when they do.
	caveat string
	progress
}

// progress is what the status of a workload says of its rollout.
type progress struct {
	// observed: its controller has seen the current pod template.
	observed bool
	// outdated is how many of its pods are of an older pod template.
	outdated, pods int32
}

// read gets a workload whose pods can be restarted as a rollout.
func read(ctx context.Context, client kubernetes.Interface, key dependency.WorkloadKey) (*live, error) {
	switch apps := client.AppsV1(); key.Kind {
	case dependency.Deployment:
		o, err := apps.Deployments(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		status := &o.Status
		return &live{dependency.FromDeployment(o), o.Generation, deploymentCaveat(o), progress{
			status.ObservedGeneration >= o.Generation, status.Replicas - status.UpdatedReplicas, status.Replicas,
		}}, nil
	case dependency.StatefulSet:
		o, err := apps.StatefulSets(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		status := &o.Status
		return &live{dependency.FromStatefulSet(o), o.Generation, statefulSetCaveat(o), progress{
			status.ObservedGeneration >= o.Generation, status.Replicas - status.UpdatedReplicas, status.Replicas,
		}}, nil
	case dependency.DaemonSet:
		o, err := apps.DaemonSets(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		status := &o.Status
		return &live{dependency.FromDaemonSet(o), o.Generation, daemonSetCaveat(o), progress{
			status.ObservedGeneration >= o.Generation, status.CurrentNumberScheduled - status.UpdatedNumberScheduled, status.CurrentNumberScheduled,
		}}, nil
	default:
		return nil, fmt.Errorf("a %s cannot be reloaded", key.Kind)
	}
}

// behind returns which pods are of an older pod template and why, as a clause; empty if all are of
// the current one.
func (l *live) behind() string {
	switch {
	case !l.observed:
		return fmt.Sprintf("the controller of the %s has not observed its latest change yet", l.Kind)
	case l.outdated <= 0:
		return ""
	}
	why := "they are being replaced"
	switch {
	case l.Paused:
		why = fmt.Sprintf("the %s is paused, and they are replaced when it is resumed", l.Kind)
	case l.caveat != "":
		why = l.caveat
	case l.Rollout.Phase == dependency.RolloutFailed:
		why = "the rollout is not progressing"
	}
	verb := "are"
	if l.outdated == 1 {
		verb = "is"
	}
	return fmt.Sprintf("%d of %d pods %s of an older pod template; %s", l.outdated, l.pods, verb, why)
}

func deploymentCaveat(o *appsv1.Deployment) string {
	if o.Spec.Replicas != nil && *o.Spec.Replicas == 0 {
		return "it has no replicas now"
	}
	return ""
}

func statefulSetCaveat(o *appsv1.StatefulSet) string {
	strategy := o.Spec.UpdateStrategy
	switch {
	case strategy.Type == appsv1.OnDeleteStatefulSetStrategyType:
		return "its update strategy is OnDelete: each pod is replaced when it is deleted"
	case o.Spec.Replicas != nil && *o.Spec.Replicas == 0:
		return "it has no replicas now"
	case strategy.RollingUpdate != nil && strategy.RollingUpdate.Partition != nil && *strategy.RollingUpdate.Partition > 0:
		return fmt.Sprintf("its partition is %d: pods with a lower ordinal are not replaced", *strategy.RollingUpdate.Partition)
	}
	return ""
}

func daemonSetCaveat(o *appsv1.DaemonSet) string {
	if o.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType {
		return "its update strategy is OnDelete: each pod is replaced when it is deleted"
	}
	return ""
}
