package dependency

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// RolloutPhase tells how far the controller of a workload has brought its pods to the
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

// Rollout is what the status of a workload tells of its rollout. The rules are those of
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
	unobserved = Rollout{RolloutRunning, ReasonNotObserved, "its controller has not seen the new template yet"}
)

func running(done, all int32, what string) Rollout {
	return Rollout{RolloutRunning, "PodsUpdating", fmt.Sprintf("%d of %d pods are %s", done, all, what)}
}

func deploymentRollout(o *appsv1.Deployment) Rollout {
	s := &o.Status
	replicas := replicasOf(o.Spec.Replicas)
	switch {
	case s.ObservedGeneration < o.Generation:
		return unobserved
	case deadlineExceeded(s.Conditions):
		return Rollout{RolloutFailed, "ProgressDeadlineExceeded", fmt.Sprintf("%d of %d pods are new and the progress deadline has passed", s.UpdatedReplicas, replicas)}
	case s.UpdatedReplicas < replicas && o.Spec.Paused:
		return Rollout{RolloutHeld, "Paused", fmt.Sprintf("it is paused with %d of %d pods new", s.UpdatedReplicas, replicas)}
	case s.UpdatedReplicas < replicas:
		return running(s.UpdatedReplicas, replicas, "new")
	case s.Replicas > s.UpdatedReplicas:
		return Rollout{RolloutRunning, "PodsUpdating", fmt.Sprintf("%d old pods are ending", s.Replicas-s.UpdatedReplicas)}
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
		return Rollout{RolloutHeld, "OnDelete", fmt.Sprintf("%d of %d pods are new, and each is replaced when it is deleted", updated, replicas)}
	case updated < replicas-partition:
		return running(updated, replicas-partition, "new")
	case updated < replicas:
		return Rollout{RolloutHeld, "Partition", fmt.Sprintf("%d of %d pods are new, and the partition of %d holds the others back", updated, replicas, partition)}
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
		return Rollout{RolloutHeld, "OnDelete", fmt.Sprintf("%d of %d pods are new, and each is replaced when it is deleted", s.UpdatedNumberScheduled, desired)}
	case s.UpdatedNumberScheduled < desired:
		return running(s.UpdatedNumberScheduled, desired, "new")
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
