// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package jsonpatch has the operations of a JSON patch (RFC 6902).
package jsonpatch

import "strings"

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

// Pointer returns the JSON pointer (RFC 6901) with some names below what it is appended to.
func Pointer(names ...string) (pointer string) {
	for _, name := range names {
		pointer += "/" + escape.Replace(name)
	}
	return pointer
}

var escape = strings.NewReplacer("~", "~0", "/", "~1")

// Unchanged returns a test with which the patch fails, as invalid, if the object has been written since it had
// a resourceVersion. Without it, an index in a path may be that of another element by then.
func Unchanged(resourceVersion string) Operation {
	return Operation{"test", "/metadata/resourceVersion", resourceVersion}
}
