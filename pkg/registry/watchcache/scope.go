// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package watchcache

import "strings"

// scope is what a request is about: everything, a namespace, or one object.
type scope struct{ namespace, name string }

// String returns what keys of the scope begin with, and what those who wait for its events
// are known by: "", NAMESPACE/ or NAMESPACE/NAME.
func (s scope) String() string {
	if s.namespace == "" {
		return ""
	}
	return s.namespace + "/" + s.name
}

// has reports whether a key is in the scope.
func (s scope) has(key string) bool {
	switch {
	case s.namespace == "":
		return true
	case s.name == "":
		return strings.HasPrefix(key, s.namespace+"/")
	default:
		return key == s.namespace+"/"+s.name
	}
}
