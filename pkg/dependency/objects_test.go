// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	appsv1 "k8s.io/api/apps/v1"
)

// The kinds of workloads. Their real properties are in package kind, which cannot be imported here.
const (
	Deployment  WorkloadKind = "Deployment"
	StatefulSet WorkloadKind = "StatefulSet"
	DaemonSet   WorkloadKind = "DaemonSet"
	CronJob     WorkloadKind = "CronJob"
	Job         WorkloadKind = "Job"
)

// Annotations for these tests, and their parser; package policy has the real ones.
const (
	hashAnnotation       = "config-hash"
	sourcesAnnotation    = "applied-sources"
	lastReloadAnnotation = "last-reload"
	recreatingAnnotation = "recreating"
	reloadedAtAnnotation = "reloaded-at"
	revisionAnnotation   = "revision"
)

func marksOf(object, template map[string]string) Annotations {
	return Annotations{Marks: Marks{
		Hash: object[hashAnnotation], Sources: object[sourcesAnnotation],
		LastReload: object[lastReloadAnnotation], Recreating: object[recreatingAnnotation],
		TemplateHash: template[hashAnnotation], ReloadedAt: template[reloadedAtAnnotation],
	}}
}

// readDeployment reads the fields of a Deployment that these tests use, with the status of a healthy one.
func readDeployment(o *appsv1.Deployment) *Workload {
	s := Status{Replicas: 1, Paused: o.Spec.Paused, Revision: o.Annotations[revisionAnnotation]}
	if o.Spec.Replicas != nil {
		s.Replicas = *o.Spec.Replicas
	}
	status := &o.Status
	switch {
	case status.ObservedGeneration < o.Generation:
		s.Rollout = Rollout{Phase: RolloutRunning, Reason: ReasonNotObserved}
	case status.UpdatedReplicas < s.Replicas && o.Spec.Paused:
		s.Rollout.Phase = RolloutHeld
	case status.UpdatedReplicas < s.Replicas, status.Replicas > status.UpdatedReplicas, status.AvailableReplicas < status.UpdatedReplicas:
		s.Rollout.Phase = RolloutRunning
	default:
		s.Rollout.Phase = RolloutComplete
	}
	return NewWorkload(&Object{
		Kind: Deployment, Meta: &o.ObjectMeta, Template: &o.Spec.Template, Status: s,
		Traits: Traits{Rollable: true, ReplacesTerminating: true},
	}, marksOf(o.Annotations, o.Spec.Template.Annotations))
}

// readDaemonSet reads the fields of a DaemonSet that these tests use.
func readDaemonSet(o *appsv1.DaemonSet) *Workload {
	return NewWorkload(&Object{Kind: DaemonSet, Meta: &o.ObjectMeta, Template: &o.Spec.Template, Traits: Traits{Rollable: true, PerNode: true}},
		marksOf(o.Annotations, o.Spec.Template.Annotations))
}
