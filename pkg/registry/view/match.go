// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Limits of selectors, which are matched against each object of a list, and each event of a watch. The
// documentation of the API names them.
const (
	maxFieldRequirements = 32
	// maxFieldValue is the greatest length of a value: a kind, a separator and a name. None that is longer
	// can match.
	maxFieldValue = validation.DNS1035LabelMaxLength + 1 + validation.DNS1123SubdomainMaxLength
	// maxLabelRequirements counts requirements and their values: In and NotIn look at each.
	maxLabelRequirements = 1024
)

// matcher selects objects by labels and fields. It is not a storage.SelectionPredicate,
// because a field may have several values in one object.
type matcher[O any, P Object[O]] struct {
	resource *Resource[O]
	labels   labels.Selector // nil: all
	fields   []fieldRequirements
	// name is the only name that can match, if there is one.
	name string
}

// fieldRequirements are what a selector says of one field.
type fieldRequirements struct {
	field string
	all   []fields.Requirement
}

// newMatcher compiles selectors, either of which may be nil. The field labels have been
// checked by the conversion of the scheme. Its errors are API errors.
func newMatcher[O any, P Object[O]](r *Resource[O], label labels.Selector, field fields.Selector) (*matcher[O, P], error) {
	m := &matcher[O, P]{resource: r}
	if label != nil && !label.Empty() {
		if err := boundLabels(label); err != nil {
			return nil, err
		}
		m.labels = label
	}
	if field == nil || field.Empty() {
		return m, nil
	}
	requirements := field.Requirements()
	if len(requirements) > maxFieldRequirements {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the field selector has %d requirements; at most %d are allowed", len(requirements), maxFieldRequirements))
	}
	for _, f := range requirements {
		if r.Field(new(O), f.Field) == nil {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("field label %q is not supported", f.Field))
		}
		if len(f.Value) > maxFieldValue {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("field label %q has a value of %d bytes, which cannot match: at most %d are allowed, for a name of %d and its kind",
				f.Field, len(f.Value), maxFieldValue, validation.DNS1123SubdomainMaxLength))
		}
		if r.Allows != nil {
			if err := r.Allows(f.Field, f.Value); err != nil {
				return nil, apierrors.NewBadRequest(err.Error())
			}
		}
		i := slices.IndexFunc(m.fields, func(g fieldRequirements) bool { return g.field == f.Field })
		if i < 0 {
			i, m.fields = len(m.fields), append(m.fields, fieldRequirements{field: f.Field})
		}
		m.fields[i].all = append(m.fields[i].all, f)
	}
	m.name, _ = field.RequiresExactMatch(metav1.ObjectNameField)
	return m, nil
}

// boundLabels refuses a selector with too many requirements or values.
func boundLabels(label labels.Selector) error {
	requirements, _ := label.Requirements()
	n := len(requirements)
	for i := range requirements {
		n += len(requirements[i].ValuesUnsorted())
	}
	if n > maxLabelRequirements {
		return apierrors.NewBadRequest(fmt.Sprintf("the label selector has %d requirements and values; at most %d are allowed", n, maxLabelRequirements))
	}
	return nil
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
	for i := range m.fields {
		f := &m.fields[i]
		if !of(f.field) {
			continue
		}
		has := m.resource.Field(o, f.field)
		for _, r := range f.all {
			if has(r.Value) == (r.Operator == selection.NotEquals) {
				return false
			}
		}
	}
	return m.labels == nil || m.labels.Matches(labels.Set(o.GetLabels()))
}
