// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingesttest

import (
	"maps"
	"reflect"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"

	"github.com/configdep/configdep/pkg/ingest"
	"github.com/configdep/configdep/pkg/kind"
)

// Namespace is the namespace of objects that are written without one.
const Namespace = "shop"

// Object is an API object.
type Object interface {
	metav1.Object
	runtime.Object
}

// Cluster contains the objects that an API server stores and, after Start, a process that reads them. It is not
// safe for concurrent use; the index is.
type Cluster struct {
	// Version is the version of the last write. A test may change it, because other resources are written too.
	Version uint64
	// Manager is the field manager of writes.
	Manager string
	// Wrote, if it is not nil, is called with each object that is written or deleted, before the process reads the
	// event.
	Wrote func(o Object, deleted bool)
	// Kinds are those of its objects that are not of Kubernetes itself.
	Kinds kind.Table

	t       testing.TB
	clock   clock.PassiveClock // of the API server
	objects map[id]Object
	process *process // nil: no process reads
}

// id identifies an object.
type id struct{ resource, namespace, name string }

// New returns an empty cluster at version 100, with the clock of its API server.
func New(t testing.TB, c clock.PassiveClock) *Cluster {
	t.Helper()
	return &Cluster{Version: 100, Manager: "owner", t: t, clock: c, objects: map[id]Object{}}
}

// Set creates or updates an object. It sets what an API server sets, unless the object has it: the namespace, UID,
// creation time and version, and the managed fields of content and of pod templates.
func (c *Cluster) Set(o Object) {
	key := c.identify(o)
	c.Version++
	o.SetResourceVersion(c.version())
	old := c.objects[key]
	if old == nil {
		c.created(o)
	} else {
		c.changed(old, o)
	}
	c.objects[key] = o
	c.wrote(o, false)
	c.tell(key.resource, o, (*ingest.Replay).Set)
}

// Delete deletes an object, which needs only a name.
func (c *Cluster) Delete(o Object) {
	key := c.identify(o)
	old := c.objects[key]
	if old == nil {
		c.t.Helper()
		c.t.Errorf("%s %s to delete does not exist", key.resource, key.name)
		return
	}
	c.Version++
	delete(c.objects, key)
	gone := old.DeepCopyObject().(Object)
	gone.SetResourceVersion(c.version())
	c.wrote(gone, true)
	c.tell(key.resource, gone, (*ingest.Replay).Delete)
}

func (c *Cluster) wrote(o Object, deleted bool) {
	if c.Wrote != nil {
		c.Wrote(o, deleted)
	}
}

// Stored returns an object as it is stored, or nil.
func (c *Cluster) Stored(o Object) Object { return c.objects[c.identify(o)] }

// Managed returns the entry that a write of the fields leaves at the current time.
func (c *Cluster) Managed(fields string) []metav1.ManagedFieldsEntry {
	at := metav1.NewTime(c.clock.Now()).Rfc3339Copy()
	return []metav1.ManagedFieldsEntry{{Manager: c.Manager, Time: &at, FieldsV1: metav1.NewFieldsV1(fields)}}
}

// ResourceOf returns the resource of an object.
func ResourceOf(o Object) schema.GroupVersionResource {
	kinds, _, err := scheme.Scheme.ObjectKinds(o)
	if err != nil {
		panic(err)
	}
	resource, _ := meta.UnsafeGuessKindToResource(kinds[0])
	return resource
}

func (c *Cluster) resourceOf(o Object) string {
	if c.Kinds != nil {
		if k := c.Kinds.OfObject(o); k != nil {
			return k.Resource.GroupResource().String()
		}
	}
	switch o.(type) {
	case *unstructured.Unstructured:
		return ingest.PodStatuses
	case *metav1.PartialObjectMetadata:
		return ingest.ReplicaSets
	}
	return ResourceOf(o).Resource
}

func (c *Cluster) identify(o Object) id {
	resource := c.resourceOf(o)
	if o.GetNamespace() == "" && resource != namespaces {
		o.SetNamespace(Namespace)
	}
	return id{resource, o.GetNamespace(), o.GetName()}
}

func (c *Cluster) created(o Object) {
	if o.GetUID() == "" {
		o.SetUID(types.UID(o.GetName() + "-" + o.GetResourceVersion()))
	}
	if t := o.GetCreationTimestamp(); t.IsZero() {
		o.SetCreationTimestamp(metav1.NewTime(c.clock.Now()).Rfc3339Copy())
	}
	if _, ok := o.(*unstructured.Unstructured); ok {
		o.SetGeneration(1)
	}
}

func (c *Cluster) changed(old, o Object) {
	if o.GetUID() == "" {
		o.SetUID(old.GetUID())
	}
	if t := o.GetCreationTimestamp(); t.IsZero() {
		o.SetCreationTimestamp(old.GetCreationTimestamp())
	}
	if o.GetManagedFields() != nil && !reflect.DeepEqual(o.GetManagedFields(), old.GetManagedFields()) {
		return
	}
	o.SetManagedFields(old.GetManagedFields())
	if c.changedStatus(old, o) {
		return
	}
	before, after := contentOf(old), contentOf(o)
	// As in an API server: the removal of a key changes the entry of no field manager.
	maps.DeleteFunc(after, func(k, v string) bool { w, found := before[k]; return found && v == w })
	switch {
	case len(after) > 0:
		o.SetManagedFields(c.Managed(`{"f:data":{}}`))
	case !reflect.DeepEqual(templateOf(old), templateOf(o)):
		o.SetManagedFields(c.Managed(`{"f:spec":{"f:template":{}}}`))
	}
}

// contentOf returns a copy of the content of a source.
func contentOf(o Object) map[string]string {
	out := map[string]string{}
	switch o := o.(type) {
	case *corev1.ConfigMap:
		maps.Copy(out, o.Data)
	case *corev1.Secret:
		for k, v := range o.Data {
			out[k] = string(v)
		}
	}
	return out
}

// templateOf returns the pod template of a workload with rollouts.
func templateOf(o Object) *corev1.PodTemplateSpec {
	switch o := o.(type) {
	case *appsv1.Deployment:
		return &o.Spec.Template
	case *appsv1.StatefulSet:
		return &o.Spec.Template
	case *appsv1.DaemonSet:
		return &o.Spec.Template
	}
	return nil
}
