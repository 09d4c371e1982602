package dependency

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// RolloutPhase says how far the controller of a workload has brought its pods to the
// current template.
type RolloutPhase string

// The phases of a rollout.
const (
	RolloutComplete RolloutPhase = "Complete"
	RolloutRunning  RolloutPhase = "Running"
	// RolloutHeld: some pods are replaced only when a user acts (OnDelete, a partition,
	// a paused Deployment).
	RolloutHeld   RolloutPhase = "Held"
	RolloutFailed RolloutPhase = "Failed"
)

// Rollout is what the status of a workload says of its rollout. The rules are those of
// kubectl rollout status.
type Rollout struct {
	Phase RolloutPhase
	// Reason is a word, and Message a clause, for a phase other than Complete.
	Reason, Message string
}

// ReasonNotObserved is the reason of a rollout whose controller has yet to see the
// current template.
const ReasonNotObserved = "NotObserved"

var (
	complete   = Rollout{Phase: RolloutComplete}
	unobserved = Rollout{RolloutRunning, ReasonNotObserved, "its controller has not observed the latest change of the workload yet"}
)

func running(done, all int32, what string) Rollout {
	return Rollout{RolloutRunning, "PodsUpdating", SomePods(done, all, what)}
}

func onDelete(updated, all int32) Rollout {
	return Rollout{RolloutHeld, "OnDelete", SomePods(updated, all, "up to date") + ", and the update strategy is OnDelete: delete the other pods to replace them"}
}

func belowPartition(partition int32) string {
	return fmt.Sprintf(", and pods below the partition (%d) are not updated", partition)
}

// SomePods renders a clause such as "1 of 3 pods is ready".
func SomePods(some, all int32, what string) string {
	pods, are := "pods", "are"
	if all == 1 {
		pods = "pod"
	}
	if some == 1 || all == 1 {
		are = "is"
	}
	return fmt.Sprintf("%d of %d %s %s %s", some, all, pods, are, what)
}

func deploymentRollout(o *appsv1.Deployment) Rollout {
	s := &o.Status
	replicas := replicasOf(o.Spec.Replicas)
	switch {
	case s.ObservedGeneration < o.Generation:
		return unobserved
	case deadlineExceeded(s.Conditions):
		return Rollout{RolloutFailed, "ProgressDeadlineExceeded", SomePods(s.UpdatedReplicas, replicas, "up to date") + ", and the progress deadline has passed"}
	case s.UpdatedReplicas < replicas && o.Spec.Paused:
		return Rollout{RolloutHeld, "Paused", SomePods(s.UpdatedReplicas, replicas, "up to date") + ", and the Deployment is paused"}
	case s.UpdatedReplicas < replicas:
		return running(s.UpdatedReplicas, replicas, "up to date")
	case s.Replicas > s.UpdatedReplicas:
		if s.Replicas-s.UpdatedReplicas == 1 {
			return Rollout{RolloutRunning, "PodsUpdating", "1 old pod is pending termination"}
		}
		return Rollout{RolloutRunning, "PodsUpdating", fmt.Sprintf("%d old pods are pending termination", s.Replicas-s.UpdatedReplicas)}
	case s.AvailableReplicas < s.UpdatedReplicas:
		return running(s.AvailableReplicas, s.UpdatedReplicas, "available")
	default:
		return complete
	}
}

func deadlineExceeded(conditions []appsv1.DeploymentCondition) bool {
	for i := range conditions {
		if c := &conditions[i]; c.Type == appsv1.DeploymentProgressing {
			return c.Status == corev1.ConditionFalse && c.Reason == "ProgressDeadlineExceeded"
		}
	}
	return false
}

func statefulSetRollout(o *appsv1.StatefulSet) Rollout {
	s := &o.Status
	replicas := replicasOf(o.Spec.Replicas)
	partition := int32(0)
	if r := o.Spec.UpdateStrategy.RollingUpdate; r != nil && r.Partition != nil {
		partition = min(*r.Partition, replicas)
	}
	updated := s.UpdatedReplicas
	switch {
	case s.ObservedGeneration < o.Generation:
		return unobserved
	case s.ReadyReplicas < replicas:
		return running(s.ReadyReplicas, replicas, "ready")
	case o.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType && updated < replicas:
		return onDelete(updated, replicas)
	case updated < replicas-partition:
		r := running(updated, replicas-partition, "up to date")
		if partition > 0 {
			r.Message += belowPartition(partition)
		}
		return r
	case updated < replicas:
		return Rollout{RolloutHeld, "Partition", SomePods(updated, replicas, "up to date") + belowPartition(partition)}
	default:
		return complete
	}
}

func daemonSetRollout(o *appsv1.DaemonSet) Rollout {
	s := &o.Status
	desired := s.DesiredNumberScheduled
	switch {
	case s.ObservedGeneration < o.Generation:
		return unobserved
	case o.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType && s.UpdatedNumberScheduled < desired:
		return onDelete(s.UpdatedNumberScheduled, desired)
	case s.UpdatedNumberScheduled < desired:
		return running(s.UpdatedNumberScheduled, desired, "up to date")
	case s.NumberAvailable < desired:
		return running(s.NumberAvailable, desired, "available")
	default:
		return complete
	}
}

func replicasOf(spec *int32) int32 {
	if spec == nil {
		return 1
	}
	return *spec
}
