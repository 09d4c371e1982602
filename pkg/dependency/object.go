// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Object is a workload as read from the API server, in a form that all kinds share. Package kind creates it.
type Object struct {
	Kind WorkloadKind
	Meta *metav1.ObjectMeta
	// Template is the pod template; for a Pod, the Pod itself; empty, if the object has none.
	Template *corev1.PodTemplateSpec
	// Others are further pod templates. Their containers are not told apart by when they start.
	Others []*corev1.PodTemplateSpec
	// TemplateFields are the names of the fields with the templates, as managedFields contain them: "f:template", with the quotes. Nil: it
	// is that one.
	TemplateFields []string
	// Owner is the workload of a custom resource that the object belongs to; nil: there is none.
	Owner *Owner
	// TemplateFrom names the object whose pod template the pods of this one have; nil: they have its own. TemplateOf is the same as a
	// workload; nil: it is none that is read.
	TemplateFrom *TemplateReference
	TemplateOf   *WorkloadKey
	// Named are the sources that the object names itself.
	Named []Named
	// Fields are the fields that get their values from sources.
	Fields Fields
	// Truncated: there are more templates or names than Others and Named contain.
	Truncated bool
	Traits    Traits
	// Status is known of kinds that are Rollable.
	Status
	InPlace
}

// InPlace is how pods can be restarted in place, for a workload that is Rollable and not Reruns.
type InPlace struct {
	// NotInPlace is why they cannot, as a clause; "": they can, as far as the workload says.
	NotInPlace string
	// MaxUnavailable is how many pods may be unavailable while pods are updated; 0: none.
	MaxUnavailable int32
	// Deadline is within which time pods have to make progress; 0: the workload does not say.
	Deadline time.Duration
}

// TemplateReference names an object, in the same namespace, that has a pod template.
type TemplateReference struct{ APIVersion, Kind, Name string }

// Traits are how the controller of a kind treats its pods, as far as decisions depend on it.
type Traits struct {
	// Rollable: a change of the pod template replaces the pods.
	Rollable bool
	// Recurring: each run has its own pods, which read the current content when they
	// start.
	Recurring bool
	// Reruns: it has no rollout, but is run again. Of a kind that is Recurring, a run is started; any other workload is replaced
	// by one of the same name. Such a kind is Rollable, too.
	Reruns bool
	// AwaitsPods: its controller waits for a pod that does not become ready, and has no deadline for that.
	AwaitsPods bool
	// PerNode: a pod runs on each node, so that one may start at any moment although none runs now.
	PerNode bool
	// ReplacesTerminating: a pod that is terminating is replaced at once, and not when it is gone.
	ReplacesTerminating bool
	// Pausable: rollouts can be paused by spec.paused.
	Pausable bool
	// RestartsAt: a time in spec.restartAt replaces the pods.
	RestartsAt bool
	// KeepsPods is why a change of the pod template does not replace the pods, as a clause; "": it does.
	KeepsPods string
	// Restart says how a workload of a kind that is Rollable is restarted, where it is not by annotations of the pod template at
	// spec.template; nil: by these.
	Restart *Restart
	// UnknownPods: its pods cannot be looked up.
	UnknownPods bool
	// PodsByLabels: labels alone say which pods belong to it, because these are controlled by objects that are not read.
	PodsByLabels bool
	// Fields: configdep may set fields of it.
	Fields bool
	// Custom: it is a custom resource, for which the API server knows no strategic merge patch.
	Custom bool
}

// ordinary is the path of pod templates of most kinds.
var ordinary = []string{"spec", "template"}

// TemplatePath returns the path of the pod template whose annotations restart a workload; nil: there is none.
func (t *Traits) TemplatePath() []string {
	if t.Restart == nil {
		return ordinary
	}
	return t.Restart.Template
}

// OnlyReported reports whether nothing restarts a workload whose content has changed.
func (t *Traits) OnlyReported() bool { return t.Restart != nil && t.Restart.EventOnly }

// Restart is what is written to restart a workload of a custom resource, besides the record. The zero value: nothing, because its
// controller does what is needed when the record changes.
type Restart struct {
	// Template is the path of the pod template whose annotations are changed.
	Template []string
	// Field is the path of the field that is set to the time.
	Field []string
	// Annotation is the annotation of the object that is set to Value, or without one to the time.
	Annotation, Value string
	// EventOnly: nothing replaces the pods; an event says that content has changed.
	EventOnly bool
}

// RestartAt restarts a workload of which RestartsAt is true.
var RestartAt = &Restart{Field: []string{"spec", "restartAt"}}

// Status is what a workload reports about its pods.
type Status struct {
	Rollout Rollout
	// Replicas is how many pods there should be; of a kind that is PerNode, with those that stay on nodes which are
	// to have none any longer, because of a taint.
	Replicas int32
	// MinReady is how long a pod has to be ready before it counts as available.
	MinReady time.Duration
	// Paused: the owner has stopped the rollouts.
	Paused bool
	// Suspended: nothing of it runs until its owner resumes it.
	Suspended bool
	// Owned: another object has created it, and may create it again.
	Owned bool
	// Busy: a run is active, and no other may be started next to it.
	Busy bool
	// Revision is the number of the current rollout, for a kind whose controller counts them on the object.
	Revision string
	// TemplateRevision is the label by which pods of the current template are known, for a kind whose controller notes it on the object; empty: it
	// does not, or it is not known yet.
	TemplateRevision string
}

// Marks are the annotations that configdep itself has written on a workload: its record. Empty: there are none.
type Marks struct {
	// Hash is the hash of the content with which the pods were started, and Sources is the same source by
	// source.
	Hash, Sources string
	// LastReload describes the last restart, in JSON.
	LastReload string
	// Recreating says which pods are to be evicted or restarted in place.
	Recreating string
	// Fields says which values fields have been set to, in JSON.
	Fields string
	// Approval is what a user has decided about the content, in JSON.
	Approval string
	// TemplateHash and ReloadedAt are on the pod template: the same as Hash, and a time that makes the template
	// differ from all previous ones.
	TemplateHash, ReloadedAt string
}

// Annotations are what is kept of the annotations of a workload.
type Annotations struct {
	// Settings are those by which users say how the workload is to be restarted, by their keys, and Template are those of
	// the pod template.
	Settings, Template map[string]string
	Marks              Marks
	// Foreign are the marks of other tools on the pod template; nil: there are none.
	Foreign *Foreign
}

// Foreign is what other tools that restart workloads have written to a pod template. It stays until the next restart.
type Foreign struct {
	// Annotations are the keys of annotations.
	Annotations []string
	// Variables are environment variables, in the order of their containers, and in the order that these have.
	Variables []Variable
}

// Variable is an environment variable of a container. Names need not be unique, so Index is its place.
type Variable struct {
	Container, Name string
	Index           int
}

// Fields are the fields of an object that get their values from sources.
type Fields struct {
	// States are those of the fields that its annotation names, by path.
	States map[string]FieldState
	// Owned: configdep has set fields of it.
	Owned bool
}

// OwnedByOthers reports whether a field manager other than configdep owns one of the fields.
func (f *Fields) OwnedByOthers() bool {
	for _, state := range f.States {
		if state.Owner != "" {
			return true
		}
	}
	return false
}

// FieldState is what is kept of a field: never its value.
type FieldState struct {
	// Value is a digest of the value; zero: there is none.
	Value Digest
	// Owner is a field manager other than configdep that owns the field; empty: there is none. Own: configdep does.
	Owner string
	Own   bool
}

// NewWorkload returns the part of an object that is kept. Package policy interprets its annotations.
func NewWorkload(o *Object, annotations Annotations) *Workload {
	pods := make([]*corev1.PodSpec, 1, 1+len(o.Others))
	pods[0] = &o.Template.Spec
	for _, other := range o.Others {
		pods = append(pods, &other.Spec)
	}
	references, truncated := References(o.Named, pods...)
	w := &Workload{
		WorkloadKey:     WorkloadKey{o.Kind, o.Meta.Namespace, o.Meta.Name},
		UID:             o.Meta.UID,
		ResourceVersion: o.Meta.ResourceVersion,
		Created:         o.Meta.CreationTimestamp,
		Labels:          o.Meta.Labels,
		Annotations:     annotations.Settings, TemplateAnnotations: annotations.Template,
		Foreign: annotations.Foreign, Containers: containerNames(&o.Template.Spec),
		Absent:      absent(o),
		Marks:       annotations.Marks,
		References:  references,
		Truncated:   truncated || o.Truncated,
		Terminating: o.Meta.DeletionTimestamp != nil,
		Traits:      o.Traits,
		Status:      o.Status,
		InPlace:     o.InPlace,
		Fields:      o.Fields,
		Owner:       o.Owner,
		Borrows:     o.TemplateFrom != nil,
		TemplateOf:  o.TemplateOf,
	}
	if w.Rollable {
		w.setTemplate(o)
	}
	return w
}

// maxContainers limits the containers whose names are kept.
const maxContainers = 256

// containerNames returns the names of the containers that are no init containers.
func containerNames(pod *corev1.PodSpec) (names []string) {
	if n := min(len(pod.Containers), maxContainers); n > 0 {
		names = make([]string, n)
		for i := range names {
			names[i] = pod.Containers[i].Name
		}
	}
	return names
}

// absent returns Workload.Absent.
func absent(o *Object) (a Absent) {
	a.Annotations, a.TemplateAnnotations = len(o.Meta.Annotations) == 0, len(o.Template.Annotations) == 0
	for i := range min(len(o.Template.Spec.Containers), maxContainers) {
		if c := &o.Template.Spec.Containers[i]; len(c.Env) == 0 {
			a.Variables = append(a.Variables, c.Name)
		}
	}
	return a
}

// templateFields is the default of Object.TemplateFields.
var templateFields = []string{`"f:template"`}

// setTemplate notes the values that show whether the pod templates have changed.
func (w *Workload) setTemplate(o *Object) {
	w.template, w.unannotated = fingerprints(o)
	if w.Recurring { // another template starts nothing
		w.template = 1
	}
	fields := o.TemplateFields
	if fields == nil {
		fields = templateFields
	}
	w.TemplateWritten = o.Meta.CreationTimestamp.Time
	for i := range o.Meta.ManagedFields {
		entry := &o.Meta.ManagedFields[i]
		if entry.FieldsV1 == nil || !containsAny(entry.FieldsV1.GetRawBytes(), fields) {
			continue
		}
		by := managerOf(entry)
		if len(w.TemplateBy) < maxManagers && !slices.Contains(w.TemplateBy, by) {
			w.TemplateBy = append(w.TemplateBy, by)
		}
		if entry.Time != nil && !entry.Time.Time.Before(w.TemplateWritten) {
			w.TemplateWritten, w.templateBy = entry.Time.Time, by
		}
	}
}

func containsAny(raw []byte, names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return bytes.Contains(raw, []byte(name)) })
}

// fingerprints returns the fingerprint of the pod templates of a workload, and that of the same without the annotations of the first; 0: it has none.
func fingerprints(o *Object) (all, unannotated uint64) {
	first := *o.Template
	first.Annotations = nil
	var raw []byte
	for _, of := range append([]*corev1.PodTemplateSpec{&first}, o.Others...) {
		one, err := of.Marshal()
		if err != nil {
			return 0, 0
		}
		raw = append(binary.AppendUvarint(raw, uint64(len(one))), one...) // so that nothing moves unseen from one to another
	}
	unannotated = maphash.Bytes(seed, raw)
	for _, key := range slices.Sorted(maps.Keys(o.Template.Annotations)) {
		for _, text := range []string{key, o.Template.Annotations[key]} {
			raw = append(binary.AppendUvarint(raw, uint64(len(text))), text...)
		}
	}
	return maphash.Bytes(seed, raw), unannotated
}
