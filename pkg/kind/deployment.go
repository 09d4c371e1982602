// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package kind

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/configdep/configdep/pkg/dependency"
)

// Deployment is the name of the kind.
const Deployment dependency.WorkloadKind = "Deployment"

var deployment = &Kind{
	Name:     Deployment,
	Resource: appsv1.SchemeGroupVersion.WithResource("deployments"),
	Traits: dependency.Traits{
		Rollable: true, ReplacesTerminating: true, Pausable: true,
	},
	New:           func() Object { return &appsv1.Deployment{} },
	ByReplicaSets: true,
	From:          typed(readDeployment),
	maxUnavailable: func(o Object) int32 {
		d := o.(*appsv1.Deployment)
		if r := d.Spec.Strategy.RollingUpdate; r != nil {
			return maxUnavailable(r.MaxUnavailable, replicasOf(d.Spec.Replicas), false)
		}
		return 1
	},
	progress: func(o Object) Progress {
		d := o.(*appsv1.Deployment)
		return Progress{
			Observed: d.Status.ObservedGeneration >= d.Generation,
			Outdated: d.Status.Replicas - d.Status.UpdatedReplicas, Pods: d.Status.Replicas,
			Caveat: noReplicas(d.Spec.Replicas),
		}
	},
}

// RevisionAnnotation is the annotation in which the Deployment controller numbers the rollouts of a Deployment, on the
// Deployment and its ReplicaSets.
const RevisionAnnotation = "deployment.kubernetes.io/revision"

func readDeployment(o *appsv1.Deployment) *dependency.Object {
	return &dependency.Object{Meta: &o.ObjectMeta, Template: &o.Spec.Template, Status: dependency.Status{
		Rollout:  deploymentRollout(o),
		Replicas: replicasOf(o.Spec.Replicas),
		Paused:   o.Spec.Paused,
		Revision: o.Annotations[RevisionAnnotation],
		MinReady: seconds(o.Spec.MinReadySeconds),
	}, InPlace: dependency.InPlace{Deadline: seconds(ptr.Deref(o.Spec.ProgressDeadlineSeconds, 0))}}
}

func deploymentRollout(o *appsv1.Deployment) dependency.Rollout {
	r := deploymentPhase(o)
	for i := range o.Status.Conditions {
		switch c := &o.Status.Conditions[i]; {
		case c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue,
			c.Type == appsv1.DeploymentProgressing && c.Reason == noReplicaSetReason:
			r.Words = dependency.Line(c.Message)
		}
	}
	return r
}

// noReplicaSetReason is the reason of the condition Progressing if the ReplicaSet of the current template could not be created.
const noReplicaSetReason = "ReplicaSetCreateError"

func deploymentPhase(o *appsv1.Deployment) dependency.Rollout {
	s := &o.Status
	replicas := replicasOf(o.Spec.Replicas)
	switch {
	case s.ObservedGeneration < o.Generation:
		return unobserved
	case deadlineExceeded(s.Conditions):
		return dependency.Rollout{
			Phase: dependency.RolloutFailed, Reason: deadlineReason,
			Message: dependency.SomePods(s.UpdatedReplicas, replicas, "up to date") + ", and the progress deadline has passed",
		}
	case s.UpdatedReplicas < replicas && o.Spec.Paused:
		return dependency.Rollout{
			Phase: dependency.RolloutHeld, Reason: reasonPaused,
			Message: dependency.SomePods(s.UpdatedReplicas, replicas, "up to date") + ", and the Deployment is paused",
		}
	case s.UpdatedReplicas < replicas:
		return running(s.UpdatedReplicas, replicas, "up to date")
	case s.Replicas > s.UpdatedReplicas:
		return dependency.Rollout{Phase: dependency.RolloutRunning, Reason: reasonUpdating, Message: oldPods(s.Replicas - s.UpdatedReplicas)}
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
