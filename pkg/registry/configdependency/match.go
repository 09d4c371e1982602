// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package configdependency

import (
	"slices"
	"strings"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/dependency"
)

// fieldValues returns a function that reports whether a field of an object has a value, or
// nil if field selectors do not support the field.
func fieldValues(o *v1alpha1.ConfigDependency, field string) func(string) bool {
	is := func(actual string) func(string) bool {
		return func(value string) bool { return actual == value }
	}
	switch field {
	case v1alpha1.FieldName:
		return is(o.Name)
	case v1alpha1.FieldNamespace:
		return is(o.Namespace)
	case v1alpha1.FieldState:
		return is(string(o.Status.State))
	case v1alpha1.FieldWorkloadKind:
		return is(o.Spec.WorkloadRef.Kind)
	case v1alpha1.FieldWorkloadName:
		return is(o.Spec.WorkloadRef.Name)
	case v1alpha1.FieldSource:
		return func(value string) bool {
			for i := range o.Spec.Sources {
				s := &o.Spec.Sources[i]
				if len(value) == len(s.Kind)+1+len(s.Name) && string(s.Kind)+"/"+s.Name == value {
					return true
				}
			}
			return matchedByPattern(o, value)
		}
	default:
		return nil
	}
}

// matchedByPattern reports whether a pattern of an object matches a source, KIND/NAME, whether or not it exists.
func matchedByPattern(o *v1alpha1.ConfigDependency, source string) bool {
	if len(o.Status.Patterns) == 0 {
		return false
	}
	kind, name, _ := strings.Cut(source, "/")
	matches := func(pattern dependency.Pattern) bool { return pattern.Matches(dependency.SourceKind(kind), name) }
	excluded := slices.ContainsFunc(o.Spec.Reload.Exclude, func(x string) bool {
		kind, name, _ := strings.Cut(x, "/")
		return matches(dependency.Pattern{Kind: dependency.SourceKind(kind), Name: name})
	})
	return !excluded && slices.ContainsFunc(o.Status.Patterns, func(p v1alpha1.PatternStatus) bool {
		return matches(dependency.Pattern{Kind: dependency.SourceKind(p.Kind), Name: p.Pattern})
	})
}
