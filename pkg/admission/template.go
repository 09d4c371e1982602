// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/configdep/configdep/pkg/jsonpatch"
	"github.com/configdep/configdep/pkg/record"
)

// reloader is the field manager of Stakater Reloader, in any case.
const reloader = "Reloader"

// changesOf reports how a pod template differs from the existing one: whether it is a new one, or else whether our
// environment variables differ. A new one differs in more than what restarts write. If Reloader, which writes the same,
// changes anything, it restarts the pods.
func changesOf(now, before *written, manager string) (isNew, variables bool) {
	if strings.EqualFold(manager, reloader) {
		return !reflect.DeepEqual(now.template, before.template), false
	}
	if !reflect.DeepEqual(unmarked(now.template), unmarked(before.template)) {
		return true, false
	}
	return false, !reflect.DeepEqual(containersOf(now.template), containersOf(before.template))
}

// maxVariables limits the environment variables of ours in a pod template. If there are more, they count as the owner's.
const maxVariables = 256

// unmarked returns a template without our annotations and environment variables, and without an empty map or list of
// them.
func unmarked(template map[string]any) map[string]any {
	return withoutVariables(withoutAnnotations(template))
}

func withoutAnnotations(template map[string]any) map[string]any {
	metadata, _ := template["metadata"].(map[string]any)
	annotations, found := metadata["annotations"].(map[string]any)
	if !found {
		return template
	}
	template, metadata, annotations = maps.Clone(template), maps.Clone(metadata), maps.Clone(annotations)
	for _, key := range record.TemplateMarks() {
		delete(annotations, key)
	}
	metadata["annotations"] = annotations
	if len(annotations) == 0 {
		delete(metadata, "annotations")
	}
	template["metadata"] = metadata
	return template
}

func withoutVariables(template map[string]any) map[string]any {
	containers, n := containersOf(template), 0
	for _, c := range containers {
		for _, v := range envOf(c) {
			if isOurs(v) {
				n++
			}
		}
	}
	if n == 0 || n > maxVariables {
		return template
	}
	containers = slices.Clone(containers)
	for i, c := range containers {
		env := envOf(c)
		if !slices.ContainsFunc(env, isOurs) {
			continue
		}
		others := maps.Clone(c.(map[string]any)) //nolint:forcetypeassert // it has variables
		if others["env"] = slices.DeleteFunc(slices.Clone(env), isOurs); len(others["env"].([]any)) == 0 {
			delete(others, "env")
		}
		containers[i] = others
	}
	template = maps.Clone(template)
	spec := maps.Clone(template["spec"].(map[string]any)) //nolint:forcetypeassert // it has containers
	template["spec"], spec["containers"] = spec, containers
	return template
}

// containersOf returns the containers of a template that are no init containers.
func containersOf(template map[string]any) []any {
	spec, _ := template["spec"].(map[string]any)
	containers, _ := spec["containers"].([]any)
	return containers
}

// envOf returns the environment variables of a container.
func envOf(container any) []any {
	c, _ := container.(map[string]any)
	env, _ := c["env"].([]any)
	return env
}

// isOurs reports whether an environment variable is one that restarts set: it has such a name, and a plain value.
func isOurs(variable any) bool {
	v, _ := variable.(map[string]any)
	name, _ := v["name"].(string)
	if !record.MarksVariable(name) {
		return false
	}
	for key, value := range v {
		if _, text := value.(string); !text || key != "name" && key != "value" {
			return false
		}
	}
	return true
}

// restoreVariables appends operations that bring our environment variables to what they are in the existing workload, whose
// template is the same otherwise. They are where they were, because another order would be another template.
func (w *written) restoreVariables(operations []jsonpatch.Operation, before *written) []jsonpatch.Operation {
	existing := containersOf(before.template)
	for i, c := range containersOf(w.template) {
		env, want := envOf(c), envOf(existing[i])
		if reflect.DeepEqual(env, want) {
			continue
		}
		path := fmt.Sprintf("%s/spec/containers/%d/env", w.path, i)
		if len(want) == 0 { // all are ours
			operations = append(operations, jsonpatch.Remove(path))
			continue
		}
		if len(env) == 0 {
			operations = append(operations, jsonpatch.Add(path, []any{}))
		}
		for j, v := range slices.Backward(env) {
			if isOurs(v) {
				operations = append(operations, jsonpatch.Remove(fmt.Sprintf("%s/%d", path, j)))
			}
		}
		for j, v := range want {
			if isOurs(v) {
				operations = append(operations, jsonpatch.Add(fmt.Sprintf("%s/%d", path, j), v))
			}
		}
	}
	return operations
}
