// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package kind describes the kinds of workloads, one file for each: how to read them, and how their controllers manage
// pods. Code that reads, patches or shows workloads asks this package instead of listing kinds.
package kind

import (
	"cmp"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/configdep/configdep/pkg/dependency"
)

// Object is an API object of one of the kinds.
type Object interface {
	runtime.Object
	metav1.Object
}

// Kind describes a kind of workload.
//
// The pods of a kind that is Traits.Rollable can be restarted. Unless Traits.Restart or Traits.Reruns says otherwise, its pod template is
// at spec.template, which patches name. Unless RevisionLabel says otherwise, its controller labels pods with their revision:
// pod-template-hash or controller-revision-hash.
type Kind struct {
	// Name is the name under which workloads of the kind are known here. It is unique.
	Name dependency.WorkloadKind
	// Kind is the name in the Kubernetes API, if several kinds have the same one there; empty: it is Name.
	Kind     string
	Resource schema.GroupVersionResource
	Traits   dependency.Traits
	// Optional: the definition of the resource may come and go, and the server may lack the right to read it. Nothing waits for
	// such a kind.
	Optional bool
	// OfCluster: its objects are in no namespace.
	OfCluster bool
	// Versions are those in which an Optional kind can be read, the preferred one first.
	Versions []string
	// LabelSelector and FieldSelector select the objects that are read; empty: all of them.
	LabelSelector, FieldSelector string
	// Hidden reports whether to leave out objects with this controller, because the controller is shown instead; nil: all
	// objects are shown.
	Hidden func(controller *metav1.OwnerReference) bool
	// ListedOnly: the server is authorized to list and watch the resource, but not to get a single object.
	ListedOnly bool
	// New returns an empty object to decode into. Objects with a method Unmarshal are read in protobuf, others in JSON,
	// the only encoding for custom resources.
	New func() Object
	// Decode decodes an object of an Optional kind from JSON, and keeps only the part of it that From reads; nil: it is decoded into
	// what New returns.
	Decode func(raw []byte) (Object, error)
	// From reads an object of the type that New returns and that is not Hidden; see Read.
	From func(Object) (*dependency.Object, error)
	// ByReplicaSets: its controller has a ReplicaSet for each pod template of a workload, which controls the pods.
	ByReplicaSets bool
	// RevisionLabel is the label of pods that identifies their template; empty: it is that of apps/v1.
	RevisionLabel string

	layout   *layout // of a kind that a Descriptor describes
	progress func(Object) Progress
	// maxUnavailable returns InPlace.MaxUnavailable; nil: it is 1.
	maxUnavailable func(Object) int32
	podRevision    string // see PodRevision

	served atomic.Pointer[schema.GroupVersionResource] // see Served
}

// Progress is the part of the progress of a rollout that is read only from live objects, for an answer to a user.
type Progress struct {
	// Observed: the controller has seen the current pod template.
	Observed bool
	// Outdated is the number of Pods that have an older pod template.
	Outdated, Pods int32
	// Caveat is a clause that says why new pods may not be created at once; empty: they are.
	Caveat string
}

// builtIn are the kinds of Kubernetes itself, in the order in which they are read.
var builtIn = []*Kind{deployment, statefulSet, daemonSet, cronJob, job, replicaSet, pod}

// BuiltIn returns the kinds of Kubernetes itself.
func BuiltIn() []*Kind { return slices.Clone(builtIn) }

// rerun are CronJobs, of which a run can be started, and Jobs, which can be replaced.
var rerun = []*Kind{
	newCronJob(dependency.Traits{Rollable: true, Recurring: true, Reruns: true}),
	newJob(dependency.Traits{Rollable: true, Reruns: true}),
}

// Table is the kinds that a server reads, in the order in which they are read. A nil table is those that are built in.
type Table []*Kind

// All returns all kinds.
func (t Table) All() []*Kind {
	if t == nil {
		return BuiltIn()
	}
	return slices.Clone(t)
}

// WithReruns returns the table with CronJobs and Jobs that are run again when content changes.
func (t Table) WithReruns() Table {
	out := Table(t.All())
	for i := range out {
		if again := Table(rerun).Of(out[i].Name); again != nil {
			out[i] = again
		}
	}
	return out
}

func (t Table) find(matches func(*Kind) bool) *Kind {
	if t == nil {
		t = builtIn
	}
	if i := slices.IndexFunc(t, matches); i >= 0 {
		return t[i]
	}
	return nil
}

// Of returns a kind by its name, or nil.
func (t Table) Of(name dependency.WorkloadKind) *Kind {
	return t.find(func(k *Kind) bool { return k.Name == name })
}

// OfObject returns the kind of an object by its Go type, or nil.
func (t Table) OfObject(o runtime.Object) *Kind {
	if c, ok := o.(*custom); ok { // one type for all of them
		return t.find(func(k *Kind) bool { return k.layout == c.layout })
	}
	return t.find(func(k *Kind) bool { return reflect.TypeOf(k.New()) == reflect.TypeOf(o) })
}

// OfGroupKind returns a kind by its API group and name, or nil.
func (t Table) OfGroupKind(gk schema.GroupKind) *Kind {
	return t.find(func(k *Kind) bool { return k.GroupVersionKind().GroupKind() == gk })
}

// OfReference returns a kind by the API version and the kind in a reference to an object, or nil.
func (t Table) OfReference(apiVersion, kind string) *Kind {
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return nil
	}
	return t.OfGroupKind(schema.GroupKind{Group: gv.Group, Kind: kind})
}

// Key returns the key of a workload by a reference to it. The API version matters for custom resources only, whose kinds can have the same name.
func (t Table) Key(apiVersion, kind, namespace, name string) dependency.WorkloadKey {
	of := dependency.WorkloadKind(kind)
	if k := t.OfReference(apiVersion, kind); k != nil {
		of = k.Name
	}
	return dependency.WorkloadKey{Kind: of, Namespace: namespace, Name: name}
}

// Restarted reports whether workloads of the kind can be restarted on request. What is run again is so because of content only.
func (k *Kind) Restarted() bool {
	return k.Traits.Rollable && !k.Traits.Reruns && !k.Traits.OnlyReported()
}

// Restarted returns the names of the kinds whose workloads can be restarted, in alphabetical order.
func (t Table) Restarted() (names []dependency.WorkloadKind) {
	for _, k := range t.All() {
		if k.Restarted() {
			names = append(names, k.Name)
		}
	}
	slices.Sort(names)
	return names
}

// GroupVersionKind returns the kind as the Kubernetes API names it.
func (k *Kind) GroupVersionKind() schema.GroupVersionKind {
	return k.Served().GroupVersion().WithKind(cmp.Or(k.Kind, string(k.Name)))
}

// Served returns the resource with the version in which it is served now, as far as that is known.
func (k *Kind) Served() schema.GroupVersionResource {
	if served := k.served.Load(); served != nil {
		return *served
	}
	return k.Resource
}

// SetServed notes the version in which an Optional resource is served now.
func (k *Kind) SetServed(version string) {
	served := k.Resource
	served.Version = version
	k.served.Store(&served)
}

// Read reads an object of the type that New returns. It returns nil if the object is hidden.
func (k *Kind) Read(o Object) (*dependency.Object, error) {
	if k.IsHidden(o) {
		return nil, nil //nolint:nilnil // no error: the object is hidden
	}
	read, err := k.From(o)
	if err != nil {
		return nil, err
	}
	read.Kind, read.Traits = k.Name, k.Traits
	switch {
	case read.TemplateFrom != nil:
		read.Traits.Restart = dependency.RestartAt
	case k.layout != nil && k.layout.isFixed(o):
		read.Traits.Rollable = false
	case k.layout != nil && k.layout.lacksTemplate(o):
		read.Traits.Restart = onlyReported
	case k.layout != nil:
		read.Traits.KeepsPods = k.layout.keepsPods(o)
	}
	if read.Traits.Rollable && !read.Traits.Reruns {
		read.MaxUnavailable = 1
		if k.maxUnavailable != nil {
			read.MaxUnavailable = k.maxUnavailable(o)
		}
		read.NotInPlace = notInPlace(read)
	}
	return read, nil
}

// onlyReported restarts no workload.
var onlyReported = &dependency.Restart{EventOnly: true}

// Relate completes an object with the workloads that it refers to.
func (t Table) Relate(o *dependency.Object) {
	for _, ref := range o.Meta.OwnerReferences {
		if k := t.OfReference(ref.APIVersion, ref.Kind); k != nil && k.Optional {
			o.Owner = &dependency.Owner{WorkloadKey: dependency.WorkloadKey{Kind: k.Name, Namespace: o.Meta.Namespace, Name: ref.Name}, UID: ref.UID}
			break
		}
	}
	if from := o.TemplateFrom; from != nil {
		if k := t.OfReference(from.APIVersion, from.Kind); k != nil {
			o.TemplateOf = &dependency.WorkloadKey{Kind: k.Name, Namespace: o.Meta.Namespace, Name: from.Name}
		}
	}
}

// WorkloadOf returns the workload that a pod belongs to, by its controller and, where that is a ReplicaSet of another controller, by the
// name of that: it consists of the name of the workload and the label of the revision. UID is that of the workload; empty: it is not known.
// Found is false if no workload of the kinds is known.
func (t Table) WorkloadOf(pod metav1.Object) (key dependency.WorkloadKey, uid types.UID, found bool) {
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil {
		return dependency.WorkloadKey{Kind: Pod, Namespace: pod.GetNamespace(), Name: pod.GetName()}, pod.GetUID(), t.Of(Pod) != nil
	}
	if owner.Kind == "ReplicaSet" {
		for _, k := range t.All() {
			hash := pod.GetLabels()[cmp.Or(k.RevisionLabel, appsv1.DefaultDeploymentUniqueLabelKey)]
			if name, is := strings.CutSuffix(owner.Name, "-"+hash); k.ByReplicaSets && hash != "" && is {
				return dependency.WorkloadKey{Kind: k.Name, Namespace: pod.GetNamespace(), Name: name}, "", true
			}
		}
	}
	k := t.OfReference(owner.APIVersion, owner.Kind)
	if k == nil {
		return key, "", false
	}
	return dependency.WorkloadKey{Kind: k.Name, Namespace: pod.GetNamespace(), Name: owner.Name}, owner.UID, true
}

// RunOf returns an object of the kind as a run of the workload that controls it, if it is hidden because of that; nil: it is no run.
func (k *Kind) RunOf(o metav1.Object) *dependency.Run {
	controller := metav1.GetControllerOfNoCopy(o)
	if k.Name != Job || controller == nil || controller.Kind != string(CronJob) {
		return nil
	}
	return &dependency.Run{
		WorkloadKey: dependency.WorkloadKey{Kind: Job, Namespace: o.GetNamespace(), Name: o.GetName()},
		Of:          dependency.WorkloadKey{Kind: CronJob, Namespace: o.GetNamespace(), Name: controller.Name}, Owner: controller.UID,
	}
}

// LabelledWorkload returns the custom resource that a pod belongs to by its labels alone, because what controls the pod is not read.
func (t Table) LabelledWorkload(pod metav1.Object) (key dependency.WorkloadKey, found bool) {
	for _, k := range t {
		if k.Traits.PodsByLabels {
			if name, is := k.layout.ofLabels(pod.GetLabels()); is {
				return dependency.WorkloadKey{Kind: k.Name, Namespace: pod.GetNamespace(), Name: name}, true
			}
		}
	}
	return key, false
}

// ofLabels returns the name of the object whose pods have certain labels.
func (l *layout) ofLabels(labels map[string]string) (name string, is bool) {
	for key, value := range l.labels {
		got, found := labels[key]
		before, after, variable := strings.Cut(value, nameVariable)
		switch {
		case !found, !variable && got != value:
			return "", false
		case variable:
			rest, prefixed := strings.CutPrefix(got, before)
			of, suffixed := strings.CutSuffix(rest, after)
			if !prefixed || !suffixed || of == "" || name != "" && name != of {
				return "", false
			}
			name = of
		}
	}
	return name, name != ""
}

// PodRevision returns the label by which the controller of a workload of the kind identifies the template of a pod; empty: there is none.
func (k *Kind) PodRevision(labels map[string]string) string {
	if label := cmp.Or(k.RevisionLabel, k.podRevision); label != "" {
		return labels[label]
	}
	return cmp.Or(labels[appsv1.DefaultDeploymentUniqueLabelKey], labels[appsv1.ControllerRevisionHashLabelKey])
}

// IsHidden reports whether an object is not shown because its controller is.
func (k *Kind) IsHidden(o metav1.Object) bool {
	if k.Hidden == nil {
		return false
	}
	controller := metav1.GetControllerOfNoCopy(o)
	return controller != nil && k.Hidden(controller)
}

// Progress returns the progress of the rollout of a workload.
func (k *Kind) Progress(o Object) Progress {
	if k.progress == nil {
		return Progress{Observed: true}
	}
	return k.progress(o)
}

// hasController hides objects with any controller.
func hasController(*metav1.OwnerReference) bool { return true }
