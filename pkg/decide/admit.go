// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"slices"
	"time"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
)

// Admission is a workload that is about to be written.
type Admission struct {
	// Evaluation is completed if Action records the current content.
	*Evaluation
	// Before are the annotations of the existing workload; nil: it is being created.
	Before *Written
	// NewTemplate reports whether the write starts pods: on create, and if the pod template
	// changes in more than our annotations and environment variables.
	NewTemplate bool
	// Variables reports whether, apart from our annotations, the pod template changes in our environment variables alone
	// (see MarksVariable).
	Variables bool
	// Unsure: it is not known with which content pods will be started.
	Unsure bool
	// Now is when it is written.
	Now time.Time
}

// Written are the annotations of a workload and of its pod template, and its labels, as they are written.
type Written struct {
	Workload, Template, Labels map[string]string
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

// Records reports whether the current content is recorded, so that the sources have to be
// evaluated.
func (p AdmissionAction) Records() bool { return p == Adopt || p == Stamp }

// Action returns what is to be done. It depends on annotations only, not on sources.
func (a *Admission) Action() AdmissionAction {
	if len(a.Policy.Problems) > 0 || a.Policy.Mode == policy.Off || a.Unsure || a.tellsNames() {
		return a.restore()
	}
	switch {
	// The pods of a paused Deployment are started when it is resumed.
	case a.startsPods() && !a.Workload.Paused:
		return Stamp
	case a.Before != nil && !a.Before.recorded() && !a.wasIn():
		return Adopt
	default:
		return a.restore()
	}
}

// startsPods reports whether the write starts pods, because the template becomes another one.
func (a *Admission) startsPods() bool { return a.NewTemplate || a.Variables && !a.keepsVariables() }

// keepsVariables reports whether environment variables are restored. In the specification of workloads that have not
// opted in, or of which there is no record, nothing is.
func (a *Admission) keepsVariables() bool {
	return a.Before != nil && a.Before.recorded() && (a.Policy.Mode != policy.Off || len(a.Policy.Problems) > 0)
}

// recorded reports whether the annotations record with which content the pods were started.
func (w *Written) recorded() bool {
	return w.Workload[record.ConfigHashAnnotation] != "" || w.Template[record.ConfigHashAnnotation] != ""
}

// tellsNames reports whether the record would depend on which names exist: callers of the
// webhook are not authenticated, and could find the names of all Secrets with globs. The
// controller records such workloads later.
func (a *Admission) tellsNames() bool {
	return slices.ContainsFunc(a.Policy.Sources, func(p dependency.Pattern) bool { return p.Glob() })
}

func (a *Admission) restore() AdmissionAction {
	if a.Before == nil {
		return Leave
	}
	return Restore
}

// wasIn reports whether the workload had already opted in, or tried to: then only the
// controller knows whether its pods have read the current content.
func (a *Admission) wasIn() bool {
	p := policy.NewPolicy(policy.Annotated{
		Workload: a.Before.Workload, Template: a.Before.Template, Namespace: a.graph.Namespace(a.Workload.Namespace), Labels: a.Before.Labels,
		InNamespace: a.Workload.Namespace, Traits: a.Workload.Traits,
	}, a.defaults)
	return p.Mode != policy.Off || len(p.Problems) > 0
}

// Absent names the sources that do not exist, or lack keys, and without which it is not
// known with which content the pods will be started. They may have been written a moment
// ago.
func (a *Admission) Absent() (keys []dependency.SourceKey) {
	for i := range a.Sources {
		s := &a.Sources[i]
		if s.Missing || s.Triggers && s.Source == nil {
			keys = append(keys, a.sourceKey(s.Reference))
		}
	}
	return keys
}

// DesiredAnnotations are the annotations of ours that a workload and its pod template should have,
// with their values; a nil value means that the annotation must not exist. Others are left alone.
type DesiredAnnotations struct {
	Workload, Template map[string]*string
	// Variables reports whether the containers should have our environment variables of the existing workload, and no
	// others of ours.
	Variables bool
}

// DesiredAnnotations returns the annotations that the workload should have.
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
	stamps := action == Stamp && a.Policy.RestartsBy(a.Workload).MarksTemplate()
	if present.At = a.Now; stamps {
		present.For = present.Hash
	} else {
		present = present.AsAdopted(a.Now)
	}
	m.Workload[record.ConfigHashAnnotation] = &present.Hash
	m.Workload[record.AppliedSourcesAnnotation] = new(present.Text())
	if stamps {
		m.Template[record.ConfigHashAnnotation] = &present.Hash
	}
	return m
}

// putBack restores the annotations of the existing workload that the owner removed, or
// replaced by those of a copy. A template that differs only in our annotations would
// restart the pods for nothing. If the owner has opted out, those on the workload are the
// owner's to remove.
func (a *Admission) putBack(m *DesiredAnnotations) {
	if !a.startsPods() {
		m.Variables = a.Variables
		for _, key := range record.TemplateMarks() {
			m.Template[key] = valueOf(a.Before.Template, key)
		}
	}
	if a.Policy.Mode == policy.Off && len(a.Policy.Problems) == 0 {
		return
	}
	for _, key := range record.WorkloadMarks() {
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
