// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingesttest

import (
	"maps"
	"reflect"
	"strconv"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"

	"github.com/configdep/configdep/pkg/ingest"
)

// Namespace is that of objects which are written without one.
const Namespace = "shop"

// Object is an API object.
type Object interface {
	metav1.Object
	runtime.Object
}

// Cluster holds what an API server stores, and a process that reads it, once Start was called. It is not safe for concurrent
// use, but the index is.
type Cluster struct {
	// Version is that of the last write. A test may change it: what the index does not read is written too.
	Version uint64
	// Ahead is by how much the revision counter of a resource is ahead of the others.
	Ahead map[string]uint64
	// Manager is the field manager of what is written.
	Manager string
	// Wrote is called with each object that is written or deleted, before the process hears of it; nil: nothing is.
	Wrote func(o Object, deleted bool)

	t       testing.TB
	clock   clock.PassiveClock // of the API server
	objects map[id]Object
	process *process // nil: none reads
}

// id is what tells objects apart.
type id struct{ resource, namespace, name string }

// New returns an empty cluster at version 100, whose API server has a clock.
func New(t testing.TB, c clock.PassiveClock) *Cluster {
	t.Helper()
	return &Cluster{Version: 100, Manager: "owner", t: t, clock: c, objects: map[id]Object{}}
}

// Set creates or changes an object. What an API server sets on it is set, unless the object has it: its namespace,
// UID, creation time and version; and its managed fields, of content and of pod templates.
func (c *Cluster) Set(o Object) {
	key := c.identify(o)
	c.Version++
	o.SetResourceVersion(strconv.FormatUint(c.shown(key.resource), 10))
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

// Delete deletes an object, which needs no more than its name.
func (c *Cluster) Delete(o Object) {
	key := c.identify(o)
	old := c.objects[key]
	if old == nil {
		c.t.Helper()
		c.t.Errorf("there is no %s %s to delete", key.resource, key.name)
		return
	}
	c.Version++
	delete(c.objects, key)
	gone := old.DeepCopyObject().(Object)
	gone.SetResourceVersion(strconv.FormatUint(c.shown(key.resource), 10))
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

// Managed returns the entry that a write of some fields leaves now.
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

func (c *Cluster) identify(o Object) id {
	resource := ResourceOf(o).Resource
	if o.GetNamespace() == "" && resource != namespaces {
		o.SetNamespace(Namespace)
	}
	return id{resource, o.GetNamespace(), o.GetName()}
}

// shown returns the version that the API shows of the last write, if it was one of a resource.
func (c *Cluster) shown(resource string) uint64 { return c.Version + c.Ahead[resource] }

func (c *Cluster) created(o Object) {
	if o.GetUID() == "" {
		o.SetUID(types.UID(o.GetName() + "-" + o.GetResourceVersion()))
	}
	if t := o.GetCreationTimestamp(); t.IsZero() {
		o.SetCreationTimestamp(metav1.NewTime(c.clock.Now()).Rfc3339Copy())
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
	before, after := contentOf(old), contentOf(o)
	// As the API server does it: the removal of a key is noted for no field manager.
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

// templateOf returns the pod template of a workload that has rollouts.
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
