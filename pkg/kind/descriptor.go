// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package kind

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/dependency"
)

// Descriptor describes a kind of workload that is a custom resource. See New for what is valid, and ParsePath for the syntax of paths.
type Descriptor struct {
	Group string `json:"group"`
	Kind  string `json:"kind"`
	// Alias is the name under which workloads of the kind are shown; default: Kind.
	Alias string `json:"alias,omitempty"`
	// Resource is the name of the resource in the API: the plural of the kind, in lower case.
	Resource string `json:"resource"`
	// Versions are those in which the kind can be read, the preferred one first.
	Versions []string `json:"versions"`
	// PodTemplates are the places of its pod templates. Those that are whole Pods count, too.
	PodTemplates []TemplatePath `json:"podTemplates,omitempty"`
	// Sources are the fields in which it names ConfigMaps and Secrets itself.
	Sources []SourceFields `json:"sources,omitempty"`
	// Pods says which pods belong to a workload; nil: they cannot be looked up.
	Pods *Pods `json:"pods,omitempty"`
	// PerNode: a pod runs on each node.
	PerNode bool   `json:"perNode,omitempty"`
	Reload  Reload `json:"reload"`
	// RestartAt: a time in spec.restartAt replaces the pods.
	RestartAt bool `json:"restartAt,omitempty"`
	// TemplateFrom is where it names another workload whose pod template its pods have; nil: nowhere. It needs RestartAt, by which such a
	// workload is restarted.
	TemplateFrom *TemplateFrom `json:"templateFrom,omitempty"`
	// Status is where it reports on its rollouts; nil: nowhere.
	Status *StatusPaths `json:"status,omitempty"`
	// Fields: configdep may set fields of it by server-side apply.
	Fields bool `json:"fields,omitempty"`
}

// TemplateFrom are the fields that name a workload of the same namespace.
type TemplateFrom struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
}

// TemplatePath is where one or more pod templates are.
type TemplatePath struct {
	Path string `json:"path"`
}

// SourceFields are fields that name ConfigMaps or Secrets. Each [*] of the other paths must be one of Name.
type SourceFields struct {
	Kind dependency.SourceKind `json:"kind"`
	// Name is the path of the name.
	Name string `json:"name"`
	// Namespace is the path of the namespace. A source in another namespace than that of the workload is ignored.
	Namespace string `json:"namespace,omitempty"`
	// Key is the path of the key that is read, and KeyName is the key if the path has no value. Without both, all keys are read.
	Key     string `json:"key,omitempty"`
	KeyName string `json:"keyName,omitempty"`
	// Optional: the workload does without the source.
	Optional bool `json:"optional,omitempty"`
}

// Pods says which pods belong to a workload: those with a controller, or with labels.
type Pods struct {
	// Controller is what controls the pods; default: Workload.
	Controller PodController `json:"controller,omitempty"`
	// Labels are labels with their values, in which $(name) stands for the name of the workload, if Controller is Any.
	Labels map[string]string `json:"labels,omitempty"`
	// RevisionLabel is the label that tells pods of different pod templates apart; Revision is the path of its value for pods of the
	// current one.
	RevisionLabel string `json:"revisionLabel,omitempty"`
	Revision      string `json:"revision,omitempty"`
}

// PodController is what controls the pods of a workload.
type PodController string

// The values of PodController.
const (
	ControlledByWorkload   PodController = "Workload"
	ControlledByReplicaSet PodController = "ReplicaSet" // of the workload
	ControlledByAny        PodController = "Any"        // objects that are not read: labels alone decide
)

// Reload says how a workload is restarted.
type Reload struct {
	By ReloadBy `json:"by"`
	// Path is the path of the pod template (TemplateAnnotation; default: the only one) or of the field (Field).
	Path string `json:"path,omitempty"`
	// Annotation is the key of the annotation (Annotation; default: none, because the controller of the workload watches configdep's
	// record), and Value is what it is set to; default: the time.
	Annotation string `json:"annotation,omitempty"`
	Value      string `json:"value,omitempty"`
	// Unless is the path of a field: workloads that set it cannot be reloaded.
	Unless string `json:"unless,omitempty"`
	// NoRollout: a change of the annotations of its pod template does not replace the pods of a workload of which one of these is true, so
	// that only the strategy recreate restarts it.
	NoRollout []FieldTest `json:"noRollout,omitempty"`
}

// FieldTest is true of an object if one of the values at a path is Value, or if none of them is Not.
type FieldTest struct {
	Path  string `json:"path"`
	Value string `json:"value,omitempty"`
	Not   string `json:"not,omitempty"`
}

// ReloadBy is how a workload is restarted.
type ReloadBy string

// The values of ReloadBy.
const (
	ByTemplateAnnotation ReloadBy = "TemplateAnnotation" // an annotation of a pod template changes
	ByAnnotation         ReloadBy = "Annotation"         // an annotation of the object changes
	ByField              ReloadBy = "Field"              // a field is set to the time
	ByEvent              ReloadBy = "Event"              // nothing but an event
	ByNone               ReloadBy = "None"               // not at all: workloads are shown
)

// StatusPaths says where a workload reports on its rollout.
type StatusPaths struct {
	// ObservedGeneration is the path of the generation that its controller has seen: a number, or a text with a number.
	ObservedGeneration string `json:"observedGeneration,omitempty"`
	// Replicas is the path of how many pods there should be; without a value, it is 1.
	Replicas string `json:"replicas,omitempty"`
	// Total, Updated and Ready are the paths of how many pods there are, have the current pod template, and are available.
	Total   string `json:"total,omitempty"`
	Updated string `json:"updated,omitempty"`
	Ready   string `json:"ready,omitempty"`
	// Paused is the path of a boolean: the owner has stopped rollouts.
	Paused string `json:"paused,omitempty"`
	// Partition is the path of how many pods keep an older pod template: a number, or a percentage.
	Partition string `json:"partition,omitempty"`
	// Complete: a rollout is complete only if all of these are true.
	Complete []StatusTest `json:"complete,omitempty"`
	// Failed: it has failed if one of these is true.
	Failed []StatusTest `json:"failed,omitempty"`
	// Held: a rollout that is not complete waits for a user if one of these is true.
	Held []StatusTest `json:"held,omitempty"`
}

// StatusTest is true if an object has a condition or a value.
type StatusTest struct {
	// Condition is the type of a condition in status.conditions, and Status its status; default: True. With Reason, it must have that too.
	Condition string                 `json:"condition,omitempty"`
	Status    metav1.ConditionStatus `json:"status,omitempty"`
	Reason    string                 `json:"reason,omitempty"`
	// Path is the path of a text, a number or a boolean, and Value is what it must be.
	Path  string `json:"path,omitempty"`
	Value string `json:"value,omitempty"`
}
