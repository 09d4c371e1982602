// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/fields"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
)

// fieldsOf returns what is kept of the fields of an object that its annotation sets from sources: digests of their values, and their
// owners. Raw is the object in JSON. A digester of nil: the values are not known.
func fieldsOf(digester *dependency.Digester, raw []byte, m *metav1.ObjectMeta) (out dependency.Fields) {
	out.Owned = slices.ContainsFunc(m.ManagedFields, func(e metav1.ManagedFieldsEntry) bool { return e.Manager == record.FieldsManager })
	text, found := m.Annotations[policy.FieldsAnnotation]
	if !found || digester == nil {
		return out
	}
	all, err := fields.Parse(text)
	if err != nil { // the policy says so
		return out
	}
	var object any
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	if decoder.Decode(&object) != nil {
		return out
	}
	owners, own := ownersOf(m, false), ownersOf(m, true)
	out.States = make(map[string]dependency.FieldState, len(all))
	for i := range all {
		path := all[i].Path
		var state dependency.FieldState
		if v, found := path.Find(object); found {
			state.Value = record.FieldDigest(digester, m.UID, path.String(), v)
		}
		state.Owner, state.Own = owners.of(path), own.of(path) != ""
		out.States[path.String()] = state
	}
	return out
}

// owner is a field manager with the fields that it owns.
type owner struct {
	name string
	set  *fieldpath.Set
}

// owners are some managers of an object.
type owners []owner

// maxOwnerName limits the name of a manager that is kept, in bytes. The API server allows 128 characters.
const maxOwnerName = 128

// ownersOf returns the managers of an object, or configdep as one.
func ownersOf(m *metav1.ObjectMeta, own bool) (all owners) {
	for i := range m.ManagedFields {
		entry := &m.ManagedFields[i]
		if (entry.Manager == record.FieldsManager) != own || entry.FieldsV1 == nil || entry.Subresource == "status" {
			continue
		}
		set := &fieldpath.Set{}
		if set.FromJSON(bytes.NewReader(entry.FieldsV1.GetRawBytes())) != nil {
			continue
		}
		all = append(all, owner{entry.Manager[:min(len(entry.Manager), maxOwnerName)], set})
	}
	return all
}

// of returns the first owner of a field, or "".
func (o owners) of(p fields.Path) string {
	for _, texts := range []bool{true, false} {
		path := pathOf(p, texts)
		for i := range o {
			if o[i].set.Has(path) {
				return o[i].name
			}
		}
	}
	return ""
}

// pathOf returns a path as managedFields contain it. The keys of entries of lists are texts or, if texts is false, numbers where they can be.
func pathOf(p fields.Path, texts bool) (out fieldpath.Path) {
	for i := range p {
		s := &p[i]
		if s.Keys == nil {
			out = append(out, fieldpath.PathElement{FieldName: &s.Name})
			continue
		}
		keys := make(value.FieldList, len(s.Keys))
		for j, k := range s.Keys {
			keys[j] = value.Field{Name: k.Name, Value: value.NewValueInterface(k.Value)}
			if n, err := strconv.ParseInt(k.Value, 10, 64); err == nil && !texts {
				keys[j].Value = value.NewValueInterface(n)
			}
		}
		keys.Sort()
		out = append(out, fieldpath.PathElement{Key: &keys})
	}
	return out
}
