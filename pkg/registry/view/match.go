// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// matcher selects objects by labels and fields. It is not a storage.SelectionPredicate,
// because a field may have several values in one object.
type matcher[O any, P Object[O]] struct {
	resource *Resource[O]
	labels   labels.Selector // nil: all
	fields   []fields.Requirement
	// name is the only name that can match, if there is one.
	name string
}

// newMatcher compiles selectors, either of which may be nil. The field labels have been
// checked by the conversion of the scheme.
func newMatcher[O any, P Object[O]](r *Resource[O], label labels.Selector, field fields.Selector) (*matcher[O, P], error) {
	m := &matcher[O, P]{resource: r}
	if label != nil && !label.Empty() {
		m.labels = label
	}
	if field == nil || field.Empty() {
		return m, nil
	}
	m.fields = field.Requirements()
	m.name, _ = field.RequiresExactMatch(metav1.ObjectNameField)
	for _, f := range m.fields {
		if r.Field(new(O), f.Field) == nil {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("field label %q is not supported", f.Field))
		}
	}
	return m, nil
}

// function returns a function that reports whether an object matches, or nil if all do.
func (m *matcher[O, P]) function() func(P) bool {
	if m.labels == nil && m.fields == nil {
		return nil
	}
	return m.matches
}

func (m *matcher[O, P]) matches(o P) bool {
	return m.selects(o, func(string) bool { return true })
}

// matchesOwn is the part of matches that the item alone decides.
func (m *matcher[O, P]) matchesOwn(o P) bool { return m.selects(o, m.resource.Own) }

// selects looks at the labels, and at some of the fields.
func (m *matcher[O, P]) selects(o P, of func(field string) bool) bool {
	for _, r := range m.fields {
		if !of(r.Field) {
			continue
		}
		has := m.resource.Field(o, r.Field)(r.Value)
		if has == (r.Operator == selection.NotEquals) {
			return false
		}
	}
	return m.labels == nil || m.labels.Matches(labels.Set(o.GetLabels()))
}
