// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"maps"
	"slices"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/jsonpatch"
)

// patch returns the JSON patch that gives a workload its marks, or nil if it has them. It
// names only our annotations and environment variables, so it cannot change anything else,
// including fields that we do not know. Before is the existing workload; nil: there is none.
func (w *written) patch(m decide.DesiredAnnotations, before *written) ([]byte, error) {
	operations := mark(nil, "/metadata", w.annotations != nil, w.annotations, m.Workload)

	if w.template == nil { // no restart marks it
		return jsonpatch.Marshal(operations)
	}
	annotations := w.templateAnnotations()
	_, hasMetadata := w.template["metadata"].(map[string]any)
	of := mark(nil, w.path+"/metadata", annotations != nil, annotations, m.Template)
	if len(of) > 0 && !hasMetadata {
		operations = append(operations, jsonpatch.Add(w.path+"/metadata", struct{}{}))
	}
	operations = append(operations, of...)
	if m.Variables {
		operations = w.restoreVariables(operations, before)
	}
	return jsonpatch.Marshal(operations)
}

// mark appends operations that bring annotations to their wanted values.
func mark(operations []jsonpatch.Operation, metadata string, exists bool, present map[string]string, want map[string]*string) []jsonpatch.Operation {
	for _, key := range slices.Sorted(maps.Keys(want)) {
		value, found := present[key]
		path := jsonpatch.Pointer(metadata+"/annotations", key)
		switch wanted := want[key]; {
		case wanted == nil && found:
			operations = append(operations, jsonpatch.Remove(path))
		case wanted == nil, found && value == *wanted:
		default:
			if !exists {
				operations = append(operations, jsonpatch.Add(metadata+"/annotations", struct{}{}))
				exists = true
			}
			operations = append(operations, jsonpatch.Add(path, *wanted))
		}
	}
	return operations
}
