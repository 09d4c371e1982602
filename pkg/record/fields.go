// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"encoding/json"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/fields"
)

// Fields of a custom resource can get their values from ConfigMaps and Secrets. The annotation says which; the leader applies
// them with a field manager of its own, never by force, and records digests of the values. With these, every replica sees from
// the object alone whether its fields have the values that they should have, and who else owns them.

// FieldsManager is the field manager of such fields. It is not FieldManager: what that one owns is no value of a source.
const FieldsManager = dependency.FieldsManager

// AppliedFields says what fields have been set to. Its JSON is the value of AppliedFieldsAnnotation.
type AppliedFields struct {
	// Hash is the Evaluation.Hash of the content, and Lines identifies the annotation.
	Hash  string `json:"hash"`
	Lines string `json:"lines"`
	// Values are digests of the values that the fields were set to, by path. A value that was not set has none.
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
	MaxProblem       = 512
)

// AppliedFieldsOf returns what is recorded of the fields of a workload; nil: nothing that configdep can have written.
func AppliedFieldsOf(w *dependency.Workload) *AppliedFields {
	var a AppliedFields
	if w.Marks.Fields == "" || len(w.Marks.Fields) > maxAppliedFields || json.Unmarshal([]byte(w.Marks.Fields), &a) != nil || len(a.Problem) > MaxProblem {
		return nil
	}
	return &a
}

func (a *AppliedFields) json() string { return mustJSON(a) }

// FieldDigest returns a digest of the value of a field of the object with a UID. It tells nothing about the value of another field.
func FieldDigest(d *dependency.Digester, uid types.UID, path string, value any) dependency.Digest {
	text := fields.Canonical(value)
	defer clear(text)
	return d.FieldDigest(uid, path, text)
}

// CutBytes cuts a text to at most that many bytes, and then ends it with "...".
func CutBytes(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-3], "") + "..."
}

// FieldsPatch returns the JSON merge patch that records what fields have been set to; nil: the workload has no such fields any
// longer.
func FieldsPatch(w *dependency.Workload, a *AppliedFields) ([]byte, error) {
	if a == nil {
		return patch(w, object{AppliedFieldsAnnotation: nil}, nil)
	}
	return patch(w, object{AppliedFieldsAnnotation: a.json()}, nil)
}

// HasSetFields reports whether fields of a workload have been set and not been given up since, or may have been.
func HasSetFields(w *dependency.Workload) bool { return w.Fields.Owned || w.Marks.Fields != "" }
