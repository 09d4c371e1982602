// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package jsonpatch has the operations of a JSON patch (RFC 6902).
package jsonpatch

// Operation is one operation. The path is a JSON pointer (RFC 6901).
type Operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// Add returns the operation that adds a value, or replaces the one that is there.
func Add(path string, value any) Operation { return Operation{"add", path, value} }

// Remove returns the operation that removes what is at a path, without which the patch fails.
func Remove(path string) Operation { return Operation{Op: "remove", Path: path} }

// Unchanged returns a test with which the patch fails, as invalid, if the object has been written since it had
// a resourceVersion. Without it, an index in a path may be that of another element by then.
func Unchanged(resourceVersion string) Operation {
	return Operation{"test", "/metadata/resourceVersion", resourceVersion}
}
