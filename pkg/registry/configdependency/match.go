// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package configdependency

import (
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
	case v1alpha1.FieldReason:
		return is(o.Status.Reason)
	case v1alpha1.FieldMode:
		return is(string(o.Spec.Reload.Mode))
	case v1alpha1.FieldWorkloadKind:
		return is(o.Spec.WorkloadRef.Kind)
	case v1alpha1.FieldWorkloadName:
		return is(o.Spec.WorkloadRef.Name)
	case v1alpha1.FieldSource:
		var byPattern *patterns // for the first value that needs them
		return func(value string) bool {
			for i := range o.Spec.Sources {
				s := &o.Spec.Sources[i]
				if len(value) == len(s.Kind)+1+len(s.Name) && string(s.Kind)+"/"+s.Name == value {
					return true
				}
			}
			if len(o.Status.Patterns) == 0 {
				return false
			}
			if byPattern == nil {
				byPattern = &patterns{of: o}
			}
			return byPattern.match(value)
		}
	default:
		return nil
	}
}

// patterns match sources, KIND/NAME, present or not, against the patterns of an object. They are compiled
// once for all values of a selector.
type patterns struct {
	of               *v1alpha1.ConfigDependency
	sources, exclude *dependency.Matcher // nil: not compiled yet
}

// match reports whether a pattern matches a source that is not excluded.
func (p *patterns) match(source string) bool {
	kind, name, _ := strings.Cut(source, "/")
	if p.sources == nil {
		sources := make([]dependency.Pattern, len(p.of.Status.Patterns))
		for i := range p.of.Status.Patterns {
			s := &p.of.Status.Patterns[i]
			sources[i] = dependency.Pattern{Kind: dependency.SourceKind(s.Kind), Name: s.Pattern}
		}
		p.sources = new(dependency.NewMatcher(sources))
	}
	if !p.sources.Matches(dependency.SourceKind(kind), name) {
		return false
	}
	if p.exclude == nil {
		exclude := make([]dependency.Pattern, len(p.of.Spec.Reload.Exclude))
		for i, x := range p.of.Spec.Reload.Exclude {
			kind, name, _ := strings.Cut(x, "/")
			exclude[i] = dependency.Pattern{Kind: dependency.SourceKind(kind), Name: name}
		}
		p.exclude = new(dependency.NewMatcher(exclude))
	}
	return !p.exclude.Matches(dependency.SourceKind(kind), name)
}
