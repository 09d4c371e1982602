// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing/synctest"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/configdep/configdep/pkg/ingest/ingesttest"
)

// set creates or updates an object, as its owner does.
func (c *cluster) set(o ingesttest.Object) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.store(o)
}

func (c *cluster) store(o ingesttest.Object) {
	c.t.Helper()
	if o.GetUID() == "" {
		o.SetUID(types.UID("uid-" + o.GetName()))
	}
	// The status of a Deployment follows its pods: were its event the first, the controller could see a rollout that is
	// complete, and only pods of before.
	if c.running != nil {
		c.roll(o)
	}
	c.Set(o)
}

// mirror writes an object to the tracker of the client, or deletes it from there.
func (c *cluster) mirror(o ingesttest.Object, deleted bool) {
	c.t.Helper()
	if _, is := o.(*metav1.PartialObjectMetadata); is { // only the index reads these
		return
	}
	tracker, resource := c.client.Tracker(), ingesttest.ResourceOf(o)
	_, err := tracker.Get(resource, o.GetNamespace(), o.GetName())
	switch {
	case deleted:
		err = tracker.Delete(resource, o.GetNamespace(), o.GetName())
	case err == nil:
		err = tracker.Update(resource, o, o.GetNamespace())
	default:
		err = tracker.Create(resource, o, o.GetNamespace())
	}
	if err != nil {
		c.t.Error(err)
	}
}

// remove deletes an object.
func (c *cluster) remove(o ingesttest.Object) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Delete(o)
	if _, is := o.(*appsv1.Deployment); is {
		c.drop(o)
	}
}

// hold holds back events for the index.
func (c *cluster) hold() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Hold()
}

// release delivers all events to the index.
func (c *cluster) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Release()
}

// live returns the current state of an object in the cluster.
func live[T ingesttest.Object](c *cluster, o T) T {
	c.t.Helper()
	got, err := c.client.Tracker().Get(ingesttest.ResourceOf(o), namespace, o.GetName())
	if err != nil {
		c.t.Fatal(err)
	}
	return got.DeepCopyObject().(T)
}

// edit changes the current state of an object in the cluster, once the controller has done what it was about to: it may patch the object.
func edit[T ingesttest.Object](c *cluster, o T, f func(T)) {
	c.t.Helper()
	synctest.Wait()
	got := live(c, o)
	f(got)
	c.set(got)
}
