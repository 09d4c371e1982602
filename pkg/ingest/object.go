// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// object is what a reflector sees instead of an API object: enough of its metadata to track it,
// and the value for the graph; nil: nothing is kept of it. A bookmark has neither a value nor a name.
type object struct {
	metav1.ObjectMeta
	value any
}

// reduced returns an object with the value that read returns.
func reduced(m metav1.Object, read func(metav1.Object) (any, error)) (*object, error) {
	o := metadata(m)
	if o.Name == "" {
		return o, nil
	}
	value, err := read(m)
	if err != nil {
		return nil, err
	}
	o.value = value
	return o, nil
}

// metadata returns an object with the metadata that reflectors need.
func metadata(m metav1.Object) *object {
	return &object{ObjectMeta: metav1.ObjectMeta{Namespace: m.GetNamespace(), Name: m.GetName(), ResourceVersion: m.GetResourceVersion()}}
}

// GetObjectKind implements runtime.Object.
func (o *object) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object. The values behind an object are immutable.
func (o *object) DeepCopyObject() runtime.Object {
	c := *o
	return &c
}
