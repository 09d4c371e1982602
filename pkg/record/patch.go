// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/types"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/jsonpatch"
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
	// Unfit says, in a clause, why one of the pods does not allow that strategy, so that the restart is a rollout; empty: all allow it.
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

// Patch returns the patch that restarts the pods of a workload, and records with which content: a JSON merge patch, or a JSON patch (see IsJSONPatch). It
// names only our annotations and those of other tools that do the same, and the API server refuses it if the workload has another UID or version.
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
		if w.Foreign != nil {
			for _, key := range w.Foreign.Annotations {
				out.template[key] = nil
			}
		}
		if r.ReportsSource && len(r.Changed) > 0 {
			out.template[LastReloadedFrom] = r.Changed[0].reloadedFrom(w, r.Last.Time.Time)
		}
		out.set(append(slices.Clone(w.TemplatePath()), "metadata", "annotations"), out.template)
	}
	if operations := out.operations(w); operations != nil {
		return json.Marshal(operations)
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

// operations returns the restart as a JSON patch, if it changes variables: their names need not be unique, so no other patch leaves all others of a
// container as they are, in their order. Variables of other tools are removed, except those that the restart sets.
func (out *restartPatch) operations(w *dependency.Workload) (ops []jsonpatch.Operation) {
	if out.template == nil || w.Custom { // whose containers may be anywhere
		return nil
	}
	left, template := slices.Clone(out.variables), jsonpatch.Pointer(w.TemplatePath()...)
	at := func(container string) string {
		return template + jsonpatch.Pointer("spec", "containers", strconv.Itoa(slices.Index(w.Containers, container)), "env")
	}
	if w.Foreign != nil {
		for _, v := range slices.Backward(w.Foreign.Variables) { // so that the indexes of those before stay valid
			if !slices.Contains(w.Containers, v.Container) {
				continue
			}
			path := at(v.Container) + jsonpatch.Pointer(strconv.Itoa(v.Index))
			if i := slices.IndexFunc(left, func(set variable) bool { return set.name == v.Name }); i >= 0 {
				ops = append(ops, jsonpatch.Add(path+"/value", left[i].value))
				left = slices.Delete(left, i, i+1)
				continue
			}
			ops = append(ops, jsonpatch.Remove(path))
		}
	}
	absent := slices.Clone(w.Absent.Variables)
	for _, v := range left {
		if i := slices.Index(absent, v.container); i >= 0 {
			ops, absent = append(ops, jsonpatch.Add(at(v.container), []any{})), slices.Delete(absent, i, i+1)
		}
		ops = append(ops, jsonpatch.Add(at(v.container)+"/-", object{"name": v.name, "value": v.value}))
	}
	if len(ops) == 0 {
		return nil
	}
	first := []jsonpatch.Operation{jsonpatch.Unchanged(w.ResourceVersion)}
	if w.Absent.Annotations {
		first = append(first, jsonpatch.Add("/metadata/annotations", object{}))
	}
	if w.Absent.TemplateAnnotations {
		first = append(first, jsonpatch.Add(template+"/metadata/annotations", object{}))
	}
	first = append(first, merging("/metadata/annotations", out.workload)...)
	return slices.Concat(first, merging("", out.fields), ops)
}

// merging returns the operations of a JSON merge patch of an object that exists.
func merging(at string, merge object) (ops []jsonpatch.Operation) {
	for _, key := range slices.Sorted(maps.Keys(merge)) {
		path := at + jsonpatch.Pointer(key)
		switch value := merge[key].(type) {
		case object:
			ops = append(ops, merging(path, value)...)
		case nil: // it need not exist
			ops = append(ops, jsonpatch.Add(path, ""), jsonpatch.Remove(path))
		default:
			ops = append(ops, jsonpatch.Add(path, value))
		}
	}
	return ops
}

// IsJSONPatch reports whether a patch is a JSON patch, and no JSON merge patch.
func IsJSONPatch(patch []byte) bool { return bytes.HasPrefix(patch, []byte("[")) }

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
// the last restart, on which the back-off depends, and what a user has decided about the content.
func restore(annotations object, w *dependency.Workload) {
	for key, value := range map[string]string{RecreatingAnnotation: w.Marks.Recreating, LastReloadAnnotation: w.Marks.LastReload, ApprovedAnnotation: w.Marks.Approval} {
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
		ApprovedAnnotation: w.Marks.Approval,
	} {
		if value != "" {
			annotations[key] = nil
		}
	}
	return patch(w, annotations, nil)
}

// ApprovalPatch returns the JSON merge patch that records what a user has decided about the content of a workload.
func ApprovalPatch(w *dependency.Workload, a *Approval) ([]byte, error) {
	return patch(w, object{ApprovedAnnotation: a.Text()}, nil)
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
