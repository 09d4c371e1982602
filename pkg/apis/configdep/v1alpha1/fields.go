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
	FieldReason       = "status.reason"
	FieldMode         = "spec.reload.mode"
	FieldWorkloadKind = "spec.workloadRef.kind"
	FieldWorkloadName = "spec.workloadRef.name"
	// FieldSource answers "who uses this?": its value is "ConfigMap/NAME",
	// "Secret/NAME" or "SecretProviderClass/NAME". The kind may be written in any case.
	FieldSource = "source"
)

var selectableFields = []string{
	FieldName, FieldNamespace, FieldState, FieldReason, FieldMode, FieldWorkloadKind, FieldWorkloadName, FieldSource,
}

// convertFieldLabel accepts the selectable fields and brings their values into the
// form in which they are compared. Reasons are checked later, because they depend on the
// kinds of workloads. The generic API server answers 400 with its error.
func convertFieldLabel(label, value string) (string, string, error) {
	if !slices.Contains(selectableFields, label) {
		return "", "", fmt.Errorf("field label %q is not supported; use one of %s", label, strings.Join(selectableFields, ", "))
	}
	switch {
	case label == FieldState:
		return oneOf(label, value, States)
	case label == FieldMode:
		return oneOf(label, value, ReloadModes)
	case label != FieldSource, value == "":
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

// oneOf accepts a value of a field, in any case.
func oneOf[T ~string](label, value string, allowed []T) (string, string, error) {
	names := make([]string, len(allowed))
	for i, a := range allowed {
		if strings.EqualFold(value, string(a)) {
			return label, string(a), nil
		}
		names[i] = string(a)
	}
	return "", "", fmt.Errorf("field label %q has the value %q; use one of %s", label, value, strings.Join(names, ", "))
}
