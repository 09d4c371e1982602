// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package kind describes the kinds of workloads, one file for each: how they are read, and what their controllers do with
// their pods. It imports package dependency alone. What reads, patches or shows workloads asks it, and lists no kinds.
package kind

import (
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/configdep/configdep/pkg/dependency"
)

// Object is an API object of a kind.
type Object interface {
	runtime.Object
	metav1.Object
}

// Kind describes a kind of workload.
type Kind struct {
	Name     dependency.WorkloadKind
	Resource schema.GroupVersionResource
	Traits   dependency.Traits
	// LabelSelector and FieldSelector are what is read of the resource; empty: all of it.
	LabelSelector, FieldSelector string
	// Hidden reports whether objects with a controller are left out, because that is shown instead; nil: none is.
	Hidden func(controller *metav1.OwnerReference) bool
	// ListedOnly: the server may list and watch the resource, and has no right to get one object.
	ListedOnly bool
	// New returns an empty object to decode into. One that has a method Unmarshal is read in protobuf, others in JSON,
	// as the API server sends custom resources in no other form.
	New func() Object
	// From reads an object, as New makes them, that is not Hidden; see Read.
	From func(Object) (*dependency.Object, error)
	// Revisions says what stands for the pod templates that the workload has had.
	Revisions Revisions

	selector func(Object) *metav1.LabelSelector // nil: see Selects
	progress func(Object) Progress
	// See Current, and UpdateRevision.
	current        func(Object) IsCurrent
	updateRevision func(Object) string
}

// IsCurrent reports whether an object of Revisions holds the pod template that is in force. Data is that of a
// ControllerRevision, in JSON.
type IsCurrent func(revision metav1.Object, data []byte) bool

// Revisions are the objects in which a controller keeps the pod templates of a workload.
type Revisions uint8

// The values of Revisions.
const (
	NoRevisions Revisions = iota
	ReplicaSets
	ControllerRevisions
)

// Progress is what only the object itself tells of a rollout, for an answer to a user.
type Progress struct {
	// Observed: the controller has seen the current pod template.
	Observed bool
	// Outdated is how many of Pods are of an older pod template.
	Outdated, Pods int32
	// Caveat says in a clause why new pods may not come at once; empty: they do.
	Caveat string
}

// kinds are all of them, in the order in which they are read.
var kinds = []*Kind{deployment, statefulSet, daemonSet, cronJob, job, replicaSet, pod}

// All returns all kinds.
func All() []*Kind { return slices.Clone(kinds) }

// Of returns a kind by its name, or nil.
func Of(name dependency.WorkloadKind) *Kind {
	i := slices.IndexFunc(kinds, func(k *Kind) bool { return k.Name == name })
	if i < 0 {
		return nil
	}
	return kinds[i]
}

// OfObject returns the kind of an object by its Go type, or nil.
func OfObject(o runtime.Object) *Kind {
	i := slices.IndexFunc(kinds, func(k *Kind) bool { return reflect.TypeOf(k.New()) == reflect.TypeOf(o) })
	if i < 0 {
		return nil
	}
	return kinds[i]
}

// OfGroupKind returns a kind by its API group and name, or nil.
func OfGroupKind(gk schema.GroupKind) *Kind {
	if k := Of(dependency.WorkloadKind(gk.Kind)); k != nil && k.Resource.Group == gk.Group {
		return k
	}
	return nil
}

// Rollable returns the names of the kinds whose pods can be restarted, in alphabetical order.
func Rollable() (names []dependency.WorkloadKind) {
	for _, k := range kinds {
		if k.Traits.Rollable {
			names = append(names, k.Name)
		}
	}
	slices.Sort(names)
	return names
}

// GroupVersionKind returns the name by which the API server knows the kind.
func (k *Kind) GroupVersionKind() schema.GroupVersionKind {
	return k.Resource.GroupVersion().WithKind(string(k.Name))
}

// Read reads an object of the kind, as New makes them. It returns nil for one that is not shown, because its controller is.
func (k *Kind) Read(o Object) (*dependency.Object, error) {
	if k.IsHidden(o) {
		return nil, nil //nolint:nilnil // there is none to show
	}
	read, err := k.From(o)
	if err != nil {
		return nil, err
	}
	read.Kind, read.Traits = k.Name, k.Traits
	return read, nil
}

// IsHidden reports whether an object is not shown, because its controller is.
func (k *Kind) IsHidden(o metav1.Object) bool {
	if k.Hidden == nil {
		return false
	}
	controller := metav1.GetControllerOfNoCopy(o)
	return controller != nil && k.Hidden(controller)
}

// Selects reports whether workloads of the kind select their pods by labels: a Pod is its own, and those of a kind that is
// Recurring are those of its runs.
func (k *Kind) Selects() bool { return k.selector != nil }

// Selector returns what selects the pods of a workload of a kind that Selects.
func (k *Kind) Selector(o Object) *metav1.LabelSelector { return k.selector(o) }

// Current returns what tells which of the revisions of a workload is in force; nil: its controller has not seen the pod
// template yet. The kind has Revisions.
func (k *Kind) Current(o Object) IsCurrent { return k.current(o) }

// UpdateRevision returns the revision that the pods of the template in force carry in the label
// controller-revision-hash, if the status of the workload says that; else it is empty.
func (k *Kind) UpdateRevision(o Object) string {
	if k.updateRevision == nil {
		return ""
	}
	return k.updateRevision(o)
}

// Progress returns how far the rollout of a workload is whose kind is Rollable.
func (k *Kind) Progress(o Object) Progress { return k.progress(o) }

// hasController hides objects with any controller.
func hasController(*metav1.OwnerReference) bool { return true }
