// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"fmt"
	"slices"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/fields"
)

// The annotation says which fields of a custom resource get their values from ConfigMaps and Secrets.

// nameFields adds the sources of fields to those that an object names.
func nameFields(o *dependency.Object) {
	value, found := o.Meta.Annotations[FieldsAnnotation]
	if !found || !o.Traits.Fields {
		return
	}
	all, err := parseFields(value)
	if err != nil { // which Declare tells
		return
	}
	named := slices.Clone(o.Named)
	for i := range all {
		a := &all[i]
		named = append(named, dependency.Named{
			Kind: dependency.SourceKind(a.Kind), Name: a.Name, Key: a.Key, Path: a.Path.String(), Sets: true,
		})
	}
	o.Named = named
}

func parseFields(value string) ([]fields.Assignment, error) {
	if len(value) > maxValue {
		return nil, fmt.Errorf("must not have more than %d bytes", maxValue)
	}
	return fields.Parse(value)
}

var errNoFields = errors.New("fields of workloads of this kind cannot be set")

// declareFields declares the fields that get their values from sources, which opts the workload in.
func (d *Declaration) declareFields() {
	value, found := d.Workload[FieldsAnnotation]
	if !found {
		return
	}
	all, err := parseFields(value)
	if err == nil && !d.Fields {
		err = errNoFields
	}
	if err != nil {
		d.Problem(FieldsAnnotation, value, err)
		return
	}
	d.policy.Fields = all
	d.optIn(FieldsAnnotation)
}
