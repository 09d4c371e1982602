// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"slices"
	"strconv"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// set creates or changes an object, as its owner does.
func (c *cluster) set(o metav1.Object) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.store(o)
}

func (c *cluster) store(o metav1.Object) {
	c.t.Helper()
	c.version++
	o.SetNamespace(namespace)
	o.SetResourceVersion(strconv.FormatUint(c.version+c.ahead[resourceOf(o).Resource], 10))
	if o.GetUID() == "" {
		o.SetUID(types.UID("uid-" + o.GetName()))
	}
	if o.GetCreationTimestamp().Time.IsZero() {
		o.SetCreationTimestamp(metav1.NewTime(time.Now().Truncate(time.Second)))
	}
	object, resource := o.(runtime.Object), resourceOf(o)
	tracker := c.client.Tracker()
	if _, err := tracker.Get(resource, namespace, o.GetName()); err == nil {
		if err := tracker.Update(resource, object, namespace); err != nil {
			c.t.Error(err)
		}
	} else if err := tracker.Create(resource, object, namespace); err != nil {
		c.t.Error(err)
	}
	if !slices.Contains(indexed, resource.Resource) {
		return
	}
	c.objects[resource.Resource+"/"+o.GetName()] = object
	news := object.DeepCopyObject()
	c.tell(func() {
		if err := c.replay.Set(news); err != nil {
			c.t.Error(err)
		}
	})
}

// annotateNamespace sets the annotations of the namespace of all workloads.
func (c *cluster) annotateNamespace(annotations map[string]string) {
	c.t.Helper()
	c.mu.Lock()
	c.version++
	ns := &corev1.Namespace{}
	ns.Name, ns.ResourceVersion, ns.Annotations = namespace, strconv.FormatUint(c.version, 10), annotations
	err := c.replay.Set(ns)
	c.mu.Unlock()
	if err != nil {
		c.t.Fatal(err)
	}
	synctest.Wait() // events that it causes need the lock
}

// remove deletes an object.
func (c *cluster) remove(o metav1.Object) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	resource := resourceOf(o)
	if err := c.client.Tracker().Delete(resource, namespace, o.GetName()); err != nil {
		c.t.Error(err)
	}
	if !slices.Contains(indexed, resource.Resource) {
		return
	}
	c.version++
	delete(c.objects, resource.Resource+"/"+o.GetName())
	gone := o.(runtime.Object).DeepCopyObject()
	gone.(metav1.Object).SetResourceVersion(strconv.FormatUint(c.version+c.ahead[resource.Resource], 10))
	c.tell(func() {
		if err := c.replay.Delete(gone); err != nil {
			c.t.Error(err)
		}
	})
}

// tell passes news to the index, or keeps them.
func (c *cluster) tell(news func()) {
	if c.held {
		c.news = append(c.news, news)
		return
	}
	news()
}

// hold keeps news from the index.
func (c *cluster) hold() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = true
}

// release lets the index hear all news.
func (c *cluster) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = false
	for _, news := range c.news {
		news()
	}
	c.news = nil
}

// live returns an object as it is in the cluster.
func live[T metav1.Object](c *cluster, o T) T {
	c.t.Helper()
	got, err := c.client.Tracker().Get(resourceOf(o), namespace, o.GetName())
	if err != nil {
		c.t.Fatal(err)
	}
	return got.DeepCopyObject().(T)
}

// edit changes an object as it is in the cluster.
func edit[T metav1.Object](c *cluster, o T, f func(T)) {
	c.t.Helper()
	got := live(c, o)
	f(got)
	c.set(got)
}

// indexed are the resources of this test that the index reads.
var indexed = []string{"deployments", "statefulsets", "daemonsets", "secrets", "configmaps"}

func resourceOf(o metav1.Object) schema.GroupVersionResource {
	switch o.(type) {
	case *appsv1.Deployment:
		return appsv1.SchemeGroupVersion.WithResource("deployments")
	case *appsv1.StatefulSet:
		return appsv1.SchemeGroupVersion.WithResource("statefulsets")
	case *appsv1.DaemonSet:
		return appsv1.SchemeGroupVersion.WithResource("daemonsets")
	case *appsv1.ReplicaSet:
		return appsv1.SchemeGroupVersion.WithResource("replicasets")
	case *appsv1.ControllerRevision:
		return appsv1.SchemeGroupVersion.WithResource("controllerrevisions")
	case *corev1.Pod:
		return corev1.SchemeGroupVersion.WithResource("pods")
	case *corev1.Secret:
		return corev1.SchemeGroupVersion.WithResource("secrets")
	case *corev1.ConfigMap:
		return corev1.SchemeGroupVersion.WithResource("configmaps")
	}
	panic(fmt.Sprintf("a %T", o))
}
