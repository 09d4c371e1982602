// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"slices"

	"github.com/configdep/configdep/pkg/agent/status"
	"github.com/configdep/configdep/pkg/dependency"
)

// Prefix is that of all annotations of configdep.
const Prefix = "configdep.io/"

// LastReloadedFrom is on a pod template, and tells which source caused the last restart. Reloader writes it, and so does configdep
// for workloads that Reloader's annotations opt in, because dashboards and scripts read it.
const LastReloadedFrom = "reloader.stakater.com/last-reloaded-from"

// The annotations that are ours to write.
var (
	workloadMarks = []string{ConfigHashAnnotation, AppliedSourcesAnnotation, LastReloadAnnotation, RecreatingAnnotation, AppliedFieldsAnnotation, ApprovedAnnotation}
	templateMarks = []string{ConfigHashAnnotation, ReloadedAtAnnotation, LastReloadedFrom}
)

// WorkloadMarks are the annotations of workloads that are ours to write.
func WorkloadMarks() []string { return slices.Clone(workloadMarks) }

// IsWorkloadMark reports whether an annotation of a workload is ours to write.
func IsWorkloadMark(key string) bool { return slices.Contains(workloadMarks, key) }

// IsOfWorkload reports whether configdep or its agents write an annotation to workloads, to copies of Jobs, or to pods and their templates: a Pod without a
// controller is a workload, too.
func IsOfWorkload(key string) bool {
	return IsWorkloadMark(key) || slices.Contains([]string{
		CopyAnnotation, ReplacesAnnotation, CopyLabelsAnnotation, ReloadedAtAnnotation, RestartingAnnotation, status.Annotation, status.RestartAnnotation,
	}, key)
}

// TemplateMarks are the annotations of pod templates that are ours to write.
func TemplateMarks() []string { return slices.Clone(templateMarks) }

// The annotations that cause a restart and record it.
const (
	// ConfigHashAnnotation is the hash of the content with which the pods were started: on
	// the workload, and on the pod template, where it causes the rollout.
	ConfigHashAnnotation = Prefix + "config-hash"
	// AppliedSourcesAnnotation, on the workload, records the same content source by source. So
	// a change can be attributed to a source, and distinguished from a change of the policy.
	AppliedSourcesAnnotation = Prefix + "applied-sources"
	// ReloadedAtAnnotation, on the pod template, makes the template differ when the hash
	// does not: it is the time of a restart on request.
	ReloadedAtAnnotation = Prefix + "reloaded-at"
	// LastReloadAnnotation, on the workload, describes the last restart (a LastReload).
	LastReloadAnnotation = Prefix + "last-reload"
	// RecreatingAnnotation is on the workload while its pods are evicted or restarted in place, and names
	// these pods; see PodsToEvict and PodsInPlace.
	RecreatingAnnotation = Prefix + "recreating"
	// AppliedFieldsAnnotation is on a workload whose fields are set from sources, and says to which values (an AppliedFields).
	AppliedFieldsAnnotation = Prefix + "applied-fields"
	// ApprovedAnnotation, on the workload, says what a user has decided about its content (an Approval).
	ApprovedAnnotation = Prefix + "approved"
)

// MarksOf returns the annotations of a workload that are ours to write.
func MarksOf(annotations map[string]string) dependency.Marks {
	return dependency.Marks{
		Hash:       annotations[ConfigHashAnnotation],
		Sources:    annotations[AppliedSourcesAnnotation],
		LastReload: annotations[LastReloadAnnotation],
		Recreating: annotations[RecreatingAnnotation],
		Fields:     annotations[AppliedFieldsAnnotation],
		Approval:   annotations[ApprovedAnnotation],
	}
}

// FieldManager is the name under which workloads are patched. It must not begin with
// "kubectl": Flux takes the fields of such managers for drift, and reverts them.
const FieldManager = dependency.OwnFieldManager
