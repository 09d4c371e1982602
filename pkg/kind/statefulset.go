// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/configdep/configdep/pkg/dependency"
)

// StatefulSet is the name of the kind.
const StatefulSet dependency.WorkloadKind = "StatefulSet"

var statefulSet = &Kind{
	Name:     StatefulSet,
	Resource: appsv1.SchemeGroupVersion.WithResource("statefulsets"),
	Traits:   dependency.Traits{Rollable: true, AwaitsPods: true},
	New:      func() Object { return &appsv1.StatefulSet{} },
	From:     typed(readStatefulSet),
	maxUnavailable: func(o Object) int32 {
		s := o.(*appsv1.StatefulSet)
		if r := s.Spec.UpdateStrategy.RollingUpdate; r != nil {
			return maxUnavailable(r.MaxUnavailable, replicasOf(s.Spec.Replicas), false)
		}
		return 1
	},
	progress: func(o Object) Progress {
		s := o.(*appsv1.StatefulSet)
		return Progress{
			Observed: s.Status.ObservedGeneration >= s.Generation,
			Outdated: s.Status.Replicas - s.Status.UpdatedReplicas, Pods: s.Status.Replicas,
			Caveat: statefulSetCaveat(s),
		}
	},
}

func readStatefulSet(o *appsv1.StatefulSet) *dependency.Object {
	revision := ""
	if o.Status.ObservedGeneration >= o.Generation {
		revision = o.Status.UpdateRevision
	}
	return &dependency.Object{Meta: &o.ObjectMeta, Template: &o.Spec.Template, Status: dependency.Status{
		Rollout:  statefulSetRollout(o),
		Replicas: replicasOf(o.Spec.Replicas),
		MinReady: seconds(o.Spec.MinReadySeconds), TemplateRevision: revision,
	}}
}

func statefulSetRollout(o *appsv1.StatefulSet) dependency.Rollout {
	s := &o.Status
	replicas, partition := replicasOf(o.Spec.Replicas), partitionOf(o)
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
		return dependency.Rollout{
			Phase: dependency.RolloutHeld, Reason: reasonPartition,
			Message: dependency.SomePods(updated, replicas, "up to date") + belowPartition(partition),
		}
	default:
		return complete
	}
}

// partitionOf returns how many pods are not updated: those with the lowest ordinals.
func partitionOf(o *appsv1.StatefulSet) int32 {
	if r := o.Spec.UpdateStrategy.RollingUpdate; r != nil && r.Partition != nil {
		return min(*r.Partition, replicasOf(o.Spec.Replicas))
	}
	return 0
}

func statefulSetCaveat(o *appsv1.StatefulSet) string {
	strategy := &o.Spec.UpdateStrategy
	switch {
	case strategy.Type == appsv1.OnDeleteStatefulSetStrategyType:
		return onDeleteCaveat
	case replicasOf(o.Spec.Replicas) == 0:
		return noReplicas(o.Spec.Replicas)
	case strategy.RollingUpdate != nil && strategy.RollingUpdate.Partition != nil && *strategy.RollingUpdate.Partition > 0:
		return fmt.Sprintf("its partition is %d: pods with a lower ordinal are not replaced", *strategy.RollingUpdate.Partition)
	}
	return ""
}
