// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// configMap is an object with a value.
type configMap struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	value string
}

func newObject(key, value string) *configMap {
	namespace, name, _ := strings.Cut(key, "/")
	return &configMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, value: value}
}

func (o *configMap) DeepCopyObject() runtime.Object {
	c := *o
	o.DeepCopyInto(&c.ObjectMeta)
	return &c
}
