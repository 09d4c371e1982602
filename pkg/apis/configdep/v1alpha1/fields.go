// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"slices"
	"strings"
)

// The fields by which ConfigDependencies can be selected.
const (
	FieldName         = "metadata.name"
	FieldNamespace    = "metadata.namespace"
	FieldState        = "status.state"
	FieldWorkloadKind = "spec.workloadRef.kind"
	FieldWorkloadName = "spec.workloadRef.name"
	// FieldSource answers "who uses this?": its value is "ConfigMap/NAME",
	// "Secret/NAME" or "SecretProviderClass/NAME". The kind may be written in any case.
	FieldSource = "source"
)

var selectableFields = []string{
	FieldName, FieldNamespace, FieldState, FieldWorkloadKind, FieldWorkloadName, FieldSource,
}

// convertFieldLabel accepts the selectable fields and brings their values into the
// form in which they are compared. The generic API server answers 400 with its error.
func convertFieldLabel(label, value string) (string, string, error) {
	if !slices.Contains(selectableFields, label) {
		return "", "", fmt.Errorf("field label %q is not supported; use one of %s", label, strings.Join(selectableFields, ", "))
	}
	if label != FieldSource || value == "" {
		return label, value, nil
	}
	kind, name, found := strings.Cut(value, "/")
	for _, k := range SourceKinds {
		if found && name != "" && strings.EqualFold(kind, string(k)) {
			return label, string(k) + "/" + name, nil
		}
	}
	return "", "", fmt.Errorf("field label %q has the value %q, which is not of the form ConfigMap/NAME, Secret/NAME or SecretProviderClass/NAME", label, value)
}
