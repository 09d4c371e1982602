// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/fields"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
)

// FieldsRecorder makes records of the fields of an evaluation. It may be kept after the graph has changed.
type FieldsRecorder struct {
	hash, lines string
	workload    *dependency.Workload
	digester    *dependency.Digester
	// Released: fields that the annotation no longer names have been set, or may have been.
	Released bool
}

// FieldsRecorder returns a recorder of the fields of the workload.
func (e *Evaluation) FieldsRecorder() FieldsRecorder {
	applied := record.AppliedFieldsOf(e.Workload)
	return FieldsRecorder{
		hash: e.Hash, lines: e.lines(), workload: e.Workload, digester: e.graph.Digester(),
		Released: e.Workload.Fields.Owned && (applied == nil || applied.Lines != e.lines()),
	}
}

// Record returns the record of values that were to be applied. Problem says why they could not be applied. Conflict: another manager owns
// a field; then only values that the object has anyway are recorded, because a digest of any other would let readers of the object
// compare a value that they cannot read.
func (r *FieldsRecorder) Record(values []fields.Value, conflict bool, problem string, now time.Time) *record.AppliedFields {
	states := r.workload.Fields
	a := &record.AppliedFields{
		Hash: r.hash, Lines: r.lines, Problem: record.CutBytes(problem, record.MaxProblem),
		Conflict: conflict && !states.OwnedByOthers(), Time: metav1.NewTime(now),
	}
	if problem != "" {
		return a
	}
	a.Values = make(map[string]string, len(values))
	for i := range values {
		path := values[i].Path.String()
		sum := record.FieldDigest(r.digester, r.workload.UID, path, values[i].Value)
		if !conflict || states.States[path].Value == sum {
			a.Values[path] = hex.EncodeToString(sum[:])
		}
	}
	return a
}

// lines identifies the annotation in a record.
func (e *Evaluation) lines() string {
	h := fnv.New64a()
	h.Write([]byte(e.Workload.Annotations[policy.FieldsAnnotation]))
	return strconv.FormatUint(h.Sum64(), 16)
}

// problemRecheck is how long to wait after a problem before setting fields again.
const problemRecheck = 10 * time.Minute

// The reasons of decisions about fields.
const (
	ReasonFieldsNotAllowed = "FieldsNotAllowed" // Blocked: a Secret does not allow that fields of the workload are set from it
	ReasonFieldConflict    = "FieldConflict"    // Blocked: another field manager owns a field
	ReasonFieldsRefused    = "FieldsRefused"    // Blocked: a field cannot be set
	ReasonFieldsDue        = "FieldsDue"        // Pending: fields are to be set, or released
)

// decideReleased decides for a workload that has no fields to set: those that were set are released.
func (e *Evaluation) decideReleased() (d Decision, due bool) {
	if len(e.Policy.Fields) > 0 || len(e.Policy.Problems) > 0 || !record.HasSetFields(e.Workload) {
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
			"Fields cannot be set from %s, because it does not count (%s). %s", id, reason, holds(stale))}, true
	}
	if missing := e.notAllowed(); len(missing) > 0 {
		return Decision{State: Blocked, Reason: ReasonFieldsNotAllowed, Stale: stale, Message: fmt.Sprintf(
			"Fields cannot be set without consent: in the annotation %s, %s. %s", policy.AllowFieldsAnnotation, enumerate(missing), holds(stale))}, true
	}
	due := func(why string) (Decision, bool) {
		return Decision{State: Pending, Reason: ReasonFieldsDue, Action: ApplyFields, Stale: stale, Message: why + " They are due to be set."}, true
	}
	applied := record.AppliedFieldsOf(e.Workload)
	blocked := func(reason, message string) (Decision, bool) {
		again := applied.Time.Add(problemRecheck)
		if !now.Before(again) {
			return due("Fields could not be set before.")
		}
		return Decision{State: Blocked, Reason: reason, Stale: stale, RecheckAt: again, Message: message + " " + holds(stale)}, true
	}
	switch {
	case applied == nil || applied.Hash != e.Hash || applied.Lines != e.lines():
		if stale { // the restart sets them
			return d, false
		}
		return due("The fields that " + policy.FieldsAnnotation + " names have not been set from the current content.")
	case applied.Problem != "":
		return blocked(ReasonFieldsRefused, "Fields cannot be set: "+applied.Problem+".")
	}
	drifted := ""
	for i := range e.Policy.Fields {
		path := e.Policy.Fields[i].Path.String()
		state, value := e.Workload.Fields.States[path], applied.Values[path]
		switch {
		case hex.EncodeToString(state.Value[:]) == value:
		case state.Owner != "":
			message := fmt.Sprintf(
				"The field %s has another value, and the field manager %q owns it. configdep never takes fields from others: remove the field from what that manager applies, or the line from %s.",
				path, state.Owner, policy.FieldsAnnotation)
			if value == "" { // it may have become the same value: which one was to be set is not recorded
				return blocked(ReasonFieldConflict, message)
			}
			return Decision{State: Blocked, Reason: ReasonFieldConflict, Stale: stale, Message: message + " " + holds(stale)}, true
		case value != "" && state.Own && state.Value != (dependency.Digest{}):
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

// notAllowed returns what Secrets must list that do not allow setting fields from one of their keys.
func (e *Evaluation) notAllowed() (missing []string) {
	target := FieldsTarget(e.Workload)
	for i := range e.Sources {
		s := &e.Sources[i]
		if s.Kind != dependency.Secret || s.Source == nil {
			continue
		}
		for _, u := range s.Uses {
			if u.Type != dependency.Field {
				continue
			}
			for _, key := range u.Keys {
				text := idOf(s.Kind, s.Name) + " must list " + target + "#" + key
				if !fields.Allowed(s.Source.AllowFields, target, key) && !slices.Contains(missing, text) {
					missing = append(missing, text)
				}
			}
		}
	}
	return missing
}

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
