// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Resource says how the API presents the objects of a view.
type Resource[O any] struct {
	// Singular is the name under which kubectl takes one object. Categories must not have "all", because
	// "kubectl delete all" would then try to delete what cannot be deleted.
	Singular               string
	ShortNames, Categories []string
	// NewList returns a list of objects.
	NewList func(meta metav1.ListMeta, items []O) runtime.Object
	// Columns are what kubectl get prints, and Row the cells of an object.
	Columns []metav1.TableColumnDefinition
	Row     func(object *O, now time.Time) []any
	// Field returns a function that reports whether a field of an object has a value (some have several), or nil
	// for a field that cannot be selected.
	Field func(object *O, field string) func(value string) bool
	// Allows returns an error that lists what is allowed if no object can have a value of a field; nil: all values are allowed.
	Allows func(field, value string) error
	// Own reports whether a field follows from the item alone, as labels do, and not from what else
	// the object shows: no replica can have shown another value of it. Such fields and labels are what
	// Renderer.Alike is about.
	Own func(field string) bool
}
