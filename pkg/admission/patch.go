// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/configdep/configdep/pkg/policy"
)

// operation is one of a JSON patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// patch returns the JSON patch that gives a workload its marks, or nil if it carries them.
// It names our annotations alone, so that nothing else can be changed by it, known to us or
// not.
func (w *written) patch(m policy.DesiredAnnotations) ([]byte, error) {
	operations := mark(nil, "/metadata", w.annotations != nil, w.annotations, m.Workload)

	annotations := w.templateAnnotations()
	_, hasMetadata := w.template["metadata"].(map[string]any)
	of := mark(nil, "/spec/template/metadata", annotations != nil, annotations, m.Template)
	if len(of) > 0 && !hasMetadata {
		operations = append(operations, operation{"add", "/spec/template/metadata", struct{}{}})
	}
	operations = append(operations, of...)
	if len(operations) == 0 {
		return nil, nil
	}
	return json.Marshal(operations)
}

// mark appends what makes annotations be as they are wanted.
func mark(operations []operation, metadata string, exists bool, present map[string]string, want map[string]*string) []operation {
	for _, key := range slices.Sorted(maps.Keys(want)) {
		value, found := present[key]
		path := metadata + "/annotations/" + strings.ReplaceAll(key, "/", "~1")
		switch wanted := want[key]; {
		case wanted == nil && found:
			operations = append(operations, operation{"remove", path, nil})
		case wanted == nil, found && value == *wanted:
		default:
			if !exists {
				operations = append(operations, operation{"add", metadata + "/annotations", struct{}{}})
				exists = true
			}
			operations = append(operations, operation{"add", path, *wanted})
		}
	}
	return operations
}
