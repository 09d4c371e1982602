// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package configdependency

import (
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/dependency"
)

// matcher selects objects by labels and fields. It is not a storage.SelectionPredicate,
// because the field "source" has several values in one object.
type matcher struct {
	labels labels.Selector // nil: all
	fields []fields.Requirement
	// name is the only name that can match, if there is one.
	name string
}

// newMatcher compiles selectors, either of which may be nil. The field labels have been
// checked by the conversion of the scheme.
func newMatcher(label labels.Selector, field fields.Selector) (*matcher, error) {
	m := &matcher{}
	if label != nil && !label.Empty() {
		m.labels = label
	}
	if field == nil || field.Empty() {
		return m, nil
	}
	m.fields = field.Requirements()
	m.name, _ = field.RequiresExactMatch(v1alpha1.FieldName)
	for _, r := range m.fields {
		if fieldValues(&v1alpha1.ConfigDependency{}, r.Field) == nil {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("field label %q is not supported", r.Field))
		}
	}
	return m, nil
}

// function returns a function that reports whether an object matches, or nil if all do.
func (m *matcher) function() func(*v1alpha1.ConfigDependency) bool {
	if m.labels == nil && m.fields == nil {
		return nil
	}
	return m.matches
}

func (m *matcher) matches(o *v1alpha1.ConfigDependency) bool {
	return m.selects(o, func(string) bool { return true })
}

// matchesOwn is the part of matches that the workload alone decides.
func (m *matcher) matchesOwn(o *v1alpha1.ConfigDependency) bool {
	return m.selects(o, func(field string) bool { return field != v1alpha1.FieldState && field != v1alpha1.FieldSource })
}

// selects looks at the labels, and at some of the fields.
func (m *matcher) selects(o *v1alpha1.ConfigDependency, of func(field string) bool) bool {
	for _, r := range m.fields {
		if !of(r.Field) {
			continue
		}
		has := fieldValues(o, r.Field)(r.Value)
		if has == (r.Operator == selection.NotEquals) {
			return false
		}
	}
	return m.labels == nil || m.labels.Matches(labels.Set(o.Labels))
}

// fieldValues returns a function that reports whether a field of an object has a value, or
// nil for a field that cannot be selected.
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

// matchedByPattern reports whether a pattern of an object matches a source, KIND/NAME, present or not.
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
