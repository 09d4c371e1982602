// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/fields"
)

// Fields of a custom resource can get their values from ConfigMaps and Secrets. The annotation says which; the leader applies
// them with a field manager of its own, never by force, and records digests of the values. With these, every replica sees from
// the object alone whether its fields have the values that they should have, and who else owns them.

// FieldsManager is the field manager of such fields. It is not FieldManager: what that one owns is no value of a source.
const FieldsManager = dependency.FieldsManager

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

// counts reports whether a change of a source counts, and narrows the reference to what does. The arguments are those of verdict.
func (p *Policy) counts(n naming, r *dependency.Reference, source *dependency.Source, remembered bool) (out dependency.Reference, triggers bool, reason string) {
	if len(p.Fields) == 0 || !r.Sets() {
		if triggers, reason = p.verdict(n, r, source, remembered); triggers {
			out = p.effective(r, n)
		}
		return out, triggers, reason
	}
	if source != nil && source.Ignored || n.excluded {
		_, reason = p.verdict(n, r, source, remembered)
		return out, false, reason
	}
	out = *r
	out.Uses = nil
	isField := func(u dependency.Use) bool { return u.Type == dependency.Field }
	rest := *r
	if rest.Uses = slices.DeleteFunc(slices.Clone(r.Uses), isField); len(rest.Uses) > 0 {
		if also, _ := p.verdict(n, &rest, source, remembered); also {
			out = p.effective(&rest, n)
		}
	}
	out.Uses = append(slices.Clone(out.Uses), slices.DeleteFunc(slices.Clone(r.Uses), func(u dependency.Use) bool { return !isField(u) })...)
	return out, true, ""
}

// AppliedFields says what fields have been set to. Its JSON is the value of AppliedFieldsAnnotation.
type AppliedFields struct {
	// Hash is the Evaluation.Hash of the content, and Lines identifies the annotation.
	Hash  string `json:"hash"`
	Lines string `json:"lines"`
	// Values are digests of the values that the fields should have, by path.
	Values map[string]string `json:"values,omitempty"`
	// Problem says why they could not be set, other than that another manager owns them; empty: they were. It was found at Time.
	Problem string `json:"problem,omitempty"`
	// Conflict: another manager owned one of them at Time, though none could be seen.
	Conflict bool        `json:"conflict,omitempty"`
	Time     metav1.Time `json:"time"`
}

// Bounds of what is read of the annotation, which other clients can write.
const (
	maxAppliedFields = 32 << 10
	maxProblem       = 512
)

func appliedFieldsOf(w *dependency.Workload) *AppliedFields {
	var a AppliedFields
	if w.Marks.Fields == "" || len(w.Marks.Fields) > maxAppliedFields || json.Unmarshal([]byte(w.Marks.Fields), &a) != nil || len(a.Problem) > maxProblem {
		return nil
	}
	return &a
}

func (a *AppliedFields) json() string { return mustJSON(a) }

// FieldsRecorder makes records of the fields of an evaluation. It may be kept after the graph has changed.
type FieldsRecorder struct {
	hash, lines, namespace string
	digester               *dependency.Digester
	// Released: fields have been set that the annotation no longer names, or may have been.
	Released bool
}

// FieldsRecorder returns a recorder of the fields of the workload.
func (e *Evaluation) FieldsRecorder() FieldsRecorder {
	applied := appliedFieldsOf(e.Workload)
	return FieldsRecorder{
		hash: e.Hash, lines: e.lines(), namespace: e.Workload.Namespace, digester: e.graph.Digester(),
		Released: e.Workload.Fields.Owned && (applied == nil || applied.Lines != e.lines()),
	}
}

// Record returns what is recorded of values that were to be applied; problem says why they could not be, other than that another
// manager owns a field.
func (r *FieldsRecorder) Record(values []fields.Value, problem string, now time.Time) *AppliedFields {
	a := &AppliedFields{Hash: r.hash, Lines: r.lines, Problem: cutBytes(problem, maxProblem), Time: metav1.NewTime(now)}
	for i := range values {
		if a.Values == nil {
			a.Values = map[string]string{}
		}
		sum := FieldDigest(r.digester, r.namespace, values[i].Value)
		a.Values[values[i].Path.String()] = hex.EncodeToString(sum[:])
	}
	return a
}

func cutBytes(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-3], "") + "..."
}

// FieldDigest returns a digest of the value of a field.
func FieldDigest(d *dependency.Digester, namespace string, value any) dependency.Digest {
	text := fields.Canonical(value)
	defer clear(text)
	return d.ContentDigest(namespace, text)
}

// lines identifies the annotation in a record.
func (e *Evaluation) lines() string {
	h := fnv.New64a()
	h.Write([]byte(e.Workload.Annotations[FieldsAnnotation]))
	return strconv.FormatUint(h.Sum64(), 16)
}

// FieldsPatch returns the JSON merge patch that records what fields have been set to; nil: the workload has no such fields any
// longer.
func FieldsPatch(w *dependency.Workload, a *AppliedFields) ([]byte, error) {
	if a == nil {
		return patch(w, object{AppliedFieldsAnnotation: nil}, nil)
	}
	return patch(w, object{AppliedFieldsAnnotation: a.json()}, nil)
}

// problemRecheck is after how long fields are set again that could not be.
const problemRecheck = 10 * time.Minute

// Blocking the setting of fields.
const (
	ReasonFieldsNotAllowed = "FieldsNotAllowed" // Blocked: a Secret does not allow that fields of the workload are set from it
	ReasonFieldConflict    = "FieldConflict"    // Blocked: another field manager owns a field
	ReasonFieldsRefused    = "FieldsRefused"    // Blocked: a field cannot be set
	ReasonFieldsDue        = "FieldsDue"        // Pending: fields are to be set, or released
)

// hasSetFields reports whether fields of a workload have been set and not been given up since, or may have been.
func hasSetFields(w *dependency.Workload) bool { return w.Fields.Owned || w.Marks.Fields != "" }

// decideReleased decides for a workload that has no fields to set: those that were set are released.
func (e *Evaluation) decideReleased() (d Decision, due bool) {
	if len(e.Policy.Fields) > 0 || len(e.Policy.Problems) > 0 || !hasSetFields(e.Workload) {
		return d, false
	}
	return Decision{State: Pending, Reason: ReasonFieldsDue, Action: ReleaseFields,
		Message: "No annotation sets fields any longer. They keep their values, and configdep is about to give them up."}, true
}

// decideFields decides what keeps fields from being set, or that they have to be set although no content has changed.
func (e *Evaluation) decideFields(now time.Time, stale bool) (d Decision, decided bool) {
	if len(e.Policy.Fields) == 0 {
		return d, false
	}
	if id, reason := e.uncounted(); id != "" {
		return Decision{State: Blocked, Reason: ReasonFieldsRefused, Stale: stale, Message: fmt.Sprintf(
			"Fields cannot be set from %s, because it does not count (%s). %s", id, reason, onHold)}, true
	}
	if secrets := e.notAllowed(); len(secrets) > 0 {
		return Decision{State: Blocked, Reason: ReasonFieldsNotAllowed, Stale: stale, Message: fmt.Sprintf(
			"%s must allow that fields of this workload are set from it, by the annotation %s with %s (or a glob) in its list. %s",
			enumerate(secrets), AllowFieldsAnnotation, e.target(), onHold)}, true
	}
	due := func(why string) (Decision, bool) {
		return Decision{State: Pending, Reason: ReasonFieldsDue, Action: ApplyFields, Stale: stale, Message: why + " They are due to be set."}, true
	}
	applied := appliedFieldsOf(e.Workload)
	blocked := func(reason, message string) (Decision, bool) {
		again := applied.Time.Add(problemRecheck)
		if !now.Before(again) {
			return due("Fields could not be set before.")
		}
		return Decision{State: Blocked, Reason: reason, Stale: stale, RecheckAt: again, Message: message + " " + onHold}, true
	}
	switch {
	case applied == nil || applied.Hash != e.Hash || applied.Lines != e.lines():
		if stale { // the restart sets them
			return d, false
		}
		return due("The fields that " + FieldsAnnotation + " names have not been set from the current content.")
	case applied.Problem != "":
		return blocked(ReasonFieldsRefused, "Fields cannot be set: "+applied.Problem+".")
	}
	drifted := ""
	for i := range e.Policy.Fields {
		path := e.Policy.Fields[i].Path.String()
		state := e.Workload.Fields.States[path]
		switch {
		case hex.EncodeToString(state.Value[:]) == applied.Values[path]:
		case state.Owner != "":
			return Decision{State: Blocked, Reason: ReasonFieldConflict, Stale: stale, Message: fmt.Sprintf(
				"The field %s has another value, and the field manager %q owns it. configdep never takes fields from others: remove the field from what that manager applies, or the line from %s. %s",
				path, state.Owner, FieldsAnnotation, onHold)}, true
		case state.Own && state.Value != (dependency.Digest{}):
			return blocked(ReasonFieldsRefused, fmt.Sprintf("The field %s was set, but has another value, and no other field manager owns it: an admission webhook may have changed the value.", path))
		case drifted == "":
			drifted = path
		}
	}
	if drifted != "" && applied.Conflict {
		return blocked(ReasonFieldConflict, "The field "+drifted+" has another value, and another field manager owned it.")
	}
	if drifted != "" && !stale {
		return due("The field " + drifted + " has been changed by another client.")
	}
	return d, false
}

// uncounted returns a source from which fields are to be set although its changes do not count, and why they do not.
func (e *Evaluation) uncounted() (id, reason string) {
	for i := range e.Sources {
		if s := &e.Sources[i]; s.Sets() && !s.Triggers {
			return idOf(s.Kind, s.Name), s.Reason
		}
	}
	return "", ""
}

// notAllowed returns the Secrets that do not allow that fields are set from them.
func (e *Evaluation) notAllowed() (ids []string) {
	for i := range e.Sources {
		s := &e.Sources[i]
		if s.Kind == dependency.Secret && s.Source != nil && s.Sets() && !fields.Allowed(s.Source.AllowFields, e.target()) {
			ids = append(ids, idOf(s.Kind, s.Name))
		}
	}
	return ids
}

// target is the workload as AllowFieldsAnnotation names it.
func (e *Evaluation) target() string { return FieldsTarget(e.Workload) }

// FieldsTarget returns a workload as AllowFieldsAnnotation names it.
func FieldsTarget(w *dependency.Workload) string {
	return strings.ToLower(string(w.Kind)) + "/" + w.Name
}

// FieldsOnly reports whether all that has changed is content from which fields are set.
func (d *Decision) FieldsOnly() bool {
	return len(d.due) > 0 && !slices.ContainsFunc(d.due, func(c *due) bool { return !c.setsOnly() })
}

// fieldsBlocked reports whether something keeps fields from being set, so that the workload is not restarted either.
func (e *Evaluation) fieldsBlocked() bool {
	d, decided := e.decideFields(time.Time{}, false)
	return decided && d.State == Blocked
}
