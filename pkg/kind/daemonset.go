// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package kind

import (
	appsv1 "k8s.io/api/apps/v1"

	"github.com/configdep/configdep/pkg/dependency"
)

// DaemonSet is the name of the kind.
const DaemonSet dependency.WorkloadKind = "DaemonSet"

var daemonSet = &Kind{
	Name:     DaemonSet,
	Resource: appsv1.SchemeGroupVersion.WithResource("daemonsets"),
	Traits:   dependency.Traits{Rollable: true, AwaitsPods: true, PerNode: true},
	New:      func() Object { return &appsv1.DaemonSet{} },
	// The revision of a pod is the number of the template, which the DaemonSet has as well.
	podRevision: templateGenerationLabel,
	From:        typed(readDaemonSet),
	maxUnavailable: func(o Object) int32 {
		d := o.(*appsv1.DaemonSet)
		// The API server keeps the field when the type becomes OnDelete, for which it says nothing.
		if r := d.Spec.UpdateStrategy.RollingUpdate; r != nil && d.Spec.UpdateStrategy.Type != appsv1.OnDeleteDaemonSetStrategyType {
			return maxUnavailable(r.MaxUnavailable, d.Status.DesiredNumberScheduled, true)
		}
		return 1
	},
	progress: func(o Object) Progress {
		d := o.(*appsv1.DaemonSet)
		p := Progress{
			Observed: d.Status.ObservedGeneration >= d.Generation,
			Outdated: d.Status.CurrentNumberScheduled - d.Status.UpdatedNumberScheduled, Pods: d.Status.CurrentNumberScheduled,
		}
		if d.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType {
			p.Caveat = onDeleteCaveat
		}
		return p
	},
}

// Its controller numbers the templates of a DaemonSet, in an annotation of the DaemonSet and in a label of the pods.
const templateGenerationLabel = "pod-template-generation"

func readDaemonSet(o *appsv1.DaemonSet) *dependency.Object {
	revision := ""
	if o.Status.ObservedGeneration >= o.Generation {
		revision = o.Annotations[appsv1.DeprecatedTemplateGeneration]
	}
	return &dependency.Object{Meta: &o.ObjectMeta, Template: &o.Spec.Template, Status: dependency.Status{
		Rollout:  daemonSetRollout(o),
		Replicas: o.Status.DesiredNumberScheduled + o.Status.NumberMisscheduled,
		MinReady: seconds(o.Spec.MinReadySeconds), TemplateRevision: revision,
	}}
}

func daemonSetRollout(o *appsv1.DaemonSet) dependency.Rollout {
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
