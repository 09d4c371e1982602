// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/configdep/configdep/pkg/dependency"
)

type object map[string]any

// Restart is what a restart depends on.
type Restart struct {
	// Present is the record of the content that the pods are restarted with.
	Present Record
	Last    LastReload
	// Changed are the sources that have changed, the trigger first; none: it is a restart on request.
	Changed []Changed
	// Always makes the template differ even when the hash does not.
	Always bool
	// Pods are all existing pods, for a strategy that names them.
	Pods []types.UID
	// Unfit says in a clause why one of them does not allow that strategy, so that it is a rollout; empty: all do.
	Unfit string
	// Fields is what has been set of the fields; nil: the workload has none. FieldsOnly: nothing else is to be done.
	Fields     *AppliedFields
	FieldsOnly bool

	// Strategy is the way to restart it.
	Strategy Strategy
	// OptedIn: the content is recorded. That of others is adopted when they opt in.
	OptedIn bool
	// Pause is for how long a Deployment is paused.
	Pause Pause
	// ReportsSource: it leaves on the pod template which source caused it, as Reloader does.
	ReportsSource bool
}

// Patch returns the patch that restarts the pods of a workload, and records with which content: a JSON merge patch, or a strategic one (see Strategic). It
// names only our annotations and those of other tools that do the same, and the API server refuses it with a conflict if the workload has another UID or
// version.
func (r *Restart) Patch(w *dependency.Workload) ([]byte, error) {
	s := r.Strategy
	out := restartPatch{last: r.Last, fields: object{}, workload: object{}}
	if r.OptedIn {
		present := r.Present
		if present.At = r.Last.Time.Time; s.MarksTemplate() {
			present.For = present.Hash
		} else {
			present = present.AsAdopted(present.At)
		}
		out.workload[ConfigHashAnnotation], out.workload[AppliedSourcesAnnotation] = present.Hash, present.Text()
	}
	if w.Marks.Recreating != "" { // of one that is under way
		out.workload[RecreatingAnnotation] = nil
	}
	if r.Fields != nil {
		out.workload[AppliedFieldsAnnotation] = r.Fields.json()
	}
	if !r.FieldsOnly {
		s.begin(w, r, &out)
	}
	out.workload[LastReloadAnnotation] = out.last.Text()
	if out.template != nil {
		r.Pause.begin(w, r.Last.Time.Time, &out)
		out.replaceForeign(w)
		if r.ReportsSource && len(r.Changed) > 0 {
			out.template[LastReloadedFrom] = r.Changed[0].reloadedFrom(w, r.Last.Time.Time)
		}
		out.set(w.TemplatePath(), out.templatePatch(w))
	}
	return patch(w, out.workload, out.fields)
}

// set adds a field to the patch.
func (out *restartPatch) set(path []string, value any) {
	at, last := out.fields, len(path)-1
	for _, name := range path[:last] {
		inner, found := at[name].(object)
		if !found {
			inner = object{}
			at[name] = inner
		}
		at = inner
	}
	at[path[last]] = value
}

// replaceForeign removes the marks of other tools, except variables that the restart sets.
func (out *restartPatch) replaceForeign(w *dependency.Workload) {
	if w.Foreign == nil {
		return
	}
	for _, key := range w.Foreign.Annotations {
		out.template[key] = nil
	}
	if w.Custom { // its variables can be changed by no patch that leaves the other ones alone
		return
	}
	for _, v := range w.Foreign.Variables {
		if !slices.ContainsFunc(out.variables, func(set variable) bool { return set.Variable == v }) {
			out.variables = append(out.variables, variable{Variable: v})
		}
	}
}

// templatePatch returns the part of the patch for the pod template. It names containers in their order, because a strategic
// merge patch would otherwise reorder them.
func (out *restartPatch) templatePatch(w *dependency.Workload) object {
	template := object{"metadata": object{"annotations": out.template}}
	if len(out.variables) == 0 {
		return template
	}
	var containers []object
	position := func(v variable) int {
		if i := slices.Index(w.Containers, v.Container); i >= 0 {
			return i
		}
		return len(w.Containers)
	}
	slices.SortStableFunc(out.variables, func(a, b variable) int { return cmp.Compare(position(a), position(b)) })
	for _, v := range out.variables {
		i := slices.IndexFunc(containers, func(c object) bool { return c["name"] == v.Container })
		if i < 0 {
			i, containers = len(containers), append(containers, object{"name": v.Container, "env": []object(nil)})
		}
		env := object{"name": v.Name, "value": v.value}
		if v.value == "" {
			env = object{"name": v.Name, "$patch": "delete"}
		}
		containers[i]["env"] = append(containers[i]["env"].([]object), env)
	}
	template["spec"] = object{"containers": containers}
	return template
}

// Strategic reports whether a patch is a strategic merge patch, because it names entries of lists, and no JSON merge
// patch. In texts, quotes are escaped.
func Strategic(patch []byte) bool { return bytes.Contains(patch, []byte(`"containers":[`)) }

// Patch returns the JSON merge patch that writes a record to a workload, and restarts nothing.
func Patch(w *dependency.Workload, r Record) ([]byte, error) {
	annotations := object{
		ConfigHashAnnotation:     r.Hash,
		AppliedSourcesAnnotation: r.Text(),
	}
	if Rerun.UnderWay(w) && w.Marks.Recreating != "" { // it is not to be replaced any longer
		annotations[RecreatingAnnotation] = nil
	}
	restore(annotations, w)
	return patch(w, annotations, nil)
}

// restore adds annotations that belong to the record and that another client removed with it: the pods to evict,
// and the last restart, on which the back-off depends.
func restore(annotations object, w *dependency.Workload) {
	for key, value := range map[string]string{RecreatingAnnotation: w.Marks.Recreating, LastReloadAnnotation: w.Marks.LastReload} {
		if _, said := annotations[key]; w.RecordDropped && !said && value != "" {
			annotations[key] = value
		}
	}
}

// ForgetPatch returns the JSON merge patch that removes the record from a workload that has opted out, and ends a restart that is under way.
func ForgetPatch(w *dependency.Workload) ([]byte, error) {
	annotations := object{}
	for key, value := range map[string]string{
		ConfigHashAnnotation: w.Marks.Hash, AppliedSourcesAnnotation: w.Marks.Sources, RecreatingAnnotation: w.Marks.Recreating,
	} {
		if value != "" {
			annotations[key] = nil
		}
	}
	return patch(w, annotations, nil)
}

// EndPatch returns the JSON merge patch that ends a completed restart. It also writes the record again if another
// client removed it: as long as this process remembers that record, it also remembers that the restart is under
// way.
func EndPatch(w *dependency.Workload) ([]byte, error) {
	annotations := object{RecreatingAnnotation: nil}
	if w.RecordDropped {
		annotations[ConfigHashAnnotation], annotations[AppliedSourcesAnnotation] = w.Marks.Hash, w.Marks.Sources
		restore(annotations, w)
	}
	return patch(w, annotations, nil)
}

// patch returns a patch of annotations of a workload and of other fields than its metadata.
func patch(w *dependency.Workload, annotations, fields object) ([]byte, error) {
	out := object{}
	maps.Copy(out, fields)
	out["metadata"] = object{
		"uid":             w.UID,
		"resourceVersion": w.ResourceVersion,
		"annotations":     annotations,
	}
	return json.Marshal(out)
}

// mustJSON encodes values of types whose encoding cannot fail.
func mustJSON(v any) string {
	out, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(out)
}
