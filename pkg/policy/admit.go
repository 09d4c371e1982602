// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"

	"github.com/configdep/configdep/pkg/dependency"
)

// Admission is a workload that is about to be written.
type Admission struct {
	// Evaluation is completed where Action records what is present.
	*Evaluation
	// Before are the annotations of the workload as it is; nil: it is created.
	Before *Written
	// NewTemplate reports whether pods are started by it: on create, and when the pod template
	// changes in more than our annotations.
	NewTemplate bool
	// Unsure: it cannot be told with which content pods are started.
	Unsure bool
}

// Written are the annotations of a workload and of its pod template, as they are written.
type Written struct {
	Workload, Template map[string]string
}

// AdmissionAction is what is to be done about a workload that is about to be written.
type AdmissionAction string

// The actions.
const (
	Leave   AdmissionAction = "leave"   // as it is
	Restore AdmissionAction = "restore" // what the owner has dropped of ours
	Adopt   AdmissionAction = "adopt"   // opting in alone: remember what is present
	Stamp   AdmissionAction = "stamp"   // new pods: they are started with what is present
)

// Records reports whether what is present is recorded, so that the sources are looked at.
func (p AdmissionAction) Records() bool { return p == Adopt || p == Stamp }

// Action returns what is to be done. It depends on annotations alone, not on sources.
func (a *Admission) Action() AdmissionAction {
	if len(a.Policy.Problems) > 0 || a.Policy.Mode == Off || a.Unsure || a.tellsNames() {
		return a.restore()
	}
	switch {
	// The pods of a paused Deployment are started when it is resumed.
	case a.NewTemplate && !a.Workload.Paused:
		return Stamp
	case a.Before != nil && !a.Before.recorded() && !a.wasIn():
		return Adopt
	default:
		return a.restore()
	}
}

// recorded reports whether the annotations remember with which content the pods were started.
func (w *Written) recorded() bool {
	return w.Workload[ConfigHashAnnotation] != "" || w.Template[ConfigHashAnnotation] != ""
}

// tellsNames reports whether what is present depends on which names there are: callers of the
// webhook are unknown, and could find the names of all Secrets by globs. The controller does
// what is left out.
func (a *Admission) tellsNames() bool {
	return slices.ContainsFunc(a.Policy.Sources, func(p dependency.Pattern) bool { return p.Glob() })
}

func (a *Admission) restore() AdmissionAction {
	if a.Before == nil {
		return Leave
	}
	return Restore
}

// wasIn reports whether the workload had opted in already, or tried to: then it is the
// controller that knows whether its pods have read what is present.
func (a *Admission) wasIn() bool {
	p := NewPolicy(a.Before.Workload, a.graph.Namespace(a.Workload.Namespace), a.defaults)
	return p.Mode != Off || len(p.Problems) > 0
}

// Absent names the sources that are not there, or lack keys, and without which it cannot be
// told with what the pods are started. They may have been written a moment ago.
func (a *Admission) Absent() (keys []dependency.SourceKey) {
	for i := range a.Sources {
		s := &a.Sources[i]
		if s.Missing || s.Triggers && s.Source == nil {
			keys = append(keys, a.sourceKey(s.Reference))
		}
	}
	return keys
}

// DesiredAnnotations are what our annotations are to be on a workload and on its pod template: those
// that are named, with their values; nil: there must be none. Others are left alone.
type DesiredAnnotations struct {
	Workload, Template map[string]*string
}

// The annotations that are ours to write.
var (
	workloadMarks = []string{ConfigHashAnnotation, AppliedSourcesAnnotation, VerifiedAnnotation, LastReloadAnnotation, RecreatingAnnotation}
	templateMarks = []string{ConfigHashAnnotation, ReloadedAtAnnotation}
)

// WorkloadMarks are the annotations of workloads that are ours to write.
func WorkloadMarks() []string { return slices.Clone(workloadMarks) }

// TemplateMarks are the annotations of pod templates that are ours to write.
func TemplateMarks() []string { return slices.Clone(templateMarks) }

// DesiredAnnotations returns the annotations that the workload is to carry.
func (a *Admission) DesiredAnnotations() DesiredAnnotations {
	m := DesiredAnnotations{Workload: map[string]*string{}, Template: map[string]*string{}}
	action := a.Action()
	if action == Leave {
		return m
	}
	if a.Before != nil {
		a.putBack(&m)
	}
	if !action.Records() {
		return m
	}
	if missing, _ := a.Missing(); len(missing) > 0 {
		return m // new pods do not start; with what they will, the controller sees later
	}
	present := a.Present()
	m.Workload[ConfigHashAnnotation] = &present.Hash
	m.Workload[AppliedSourcesAnnotation] = new(present.sources())
	if action == Stamp && a.Policy.RestartsBy().MarksTemplate() {
		m.Template[ConfigHashAnnotation] = &present.Hash
	}
	return m
}

// putBack restores what there was: what the owner has dropped, and what comes from a copy.
// A template that differs by our annotations alone would restart the pods for nothing. On
// the workload, they are left to owners who have opted out.
func (a *Admission) putBack(m *DesiredAnnotations) {
	if !a.NewTemplate {
		for _, key := range templateMarks {
			m.Template[key] = valueOf(a.Before.Template, key)
		}
	}
	if a.Policy.Mode == Off && len(a.Policy.Problems) == 0 {
		return
	}
	for _, key := range workloadMarks {
		m.Workload[key] = valueOf(a.Before.Workload, key)
	}
}

func valueOf(annotations map[string]string, key string) *string {
	value, found := annotations[key]
	if !found {
		return nil
	}
	return &value
}
