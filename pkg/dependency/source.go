// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// SourceKey names a source in the cluster.
type SourceKey struct {
	Kind      SourceKind
	Namespace string
	Name      string
}

// Source is the part of a ConfigMap or a Secret that is kept.
type Source struct {
	SourceKey
	UID             types.UID
	ResourceVersion string
	Created         metav1.Time
	// LastChangeTime is when a client that sets content last wrote the object, to the second.
	LastChangeTime metav1.Time
	// ChangedBy is the field manager that wrote it at LastChangeTime; empty: none is known.
	ChangedBy FieldManager
	SourceMarks
	// Immutable: its content cannot be changed. The kubelet keeps it for pods that stay on its node, even if the source is deleted and created again.
	Immutable bool
	// Keys are in order.
	Keys []KeyDigest
	// periods are those before the current one, which began in the second of since, and between after and before; see Period.
	periods              []Period
	since, after, before time.Time
}

// SourceMarks are what users declare by annotations on a ConfigMap or a Secret.
type SourceMarks struct {
	// Ignored: it never restarts anything.
	Ignored bool
	// Match: it restarts workloads in mode Matched.
	Match bool
	// AllowFields says which workloads may have fields that are set from which keys of a Secret.
	AllowFields string
}

// Shown returns the keys of the source that a reference sees, sorted.
func (s *Source) Shown(r *Reference) (names []string) {
	keys, all := r.Keys()
	for i := range s.Keys {
		name := s.Keys[i].Key
		if _, read := slices.BinarySearch(keys, name); all || read {
			names = append(names, name)
		}
	}
	return names
}

// KeyDigest is one key and the digest of its content.
type KeyDigest struct {
	Key    string
	Digest Digest
	// Varied: the key had several contents in the period, or was absent in a part of it.
	Varied bool
}

// key returns what stands for a key, or nil. A nil source has no keys.
func (s *Source) key(key string) *KeyDigest {
	if s == nil {
		return nil
	}
	i, found := slices.BinarySearchFunc(s.Keys, key, func(k KeyDigest, key string) int {
		return strings.Compare(k.Key, key)
	})
	if !found {
		return nil
	}
	return &s.Keys[i]
}

// Has reports whether the source has a key. A nil source has none.
func (s *Source) Has(key string) bool { return s.key(key) != nil }

// hasOther reports whether the source has a key that another one lacks.
func (s *Source) hasOther(other *Source) bool {
	return slices.ContainsFunc(s.Keys, func(k KeyDigest) bool { return !other.Has(k.Key) })
}

// sets reports whether the source has a key with other content than another one.
func (s *Source) sets(other *Source) bool {
	return slices.ContainsFunc(s.Keys, func(k KeyDigest) bool {
		was := other.key(k.Key)
		return was == nil || !was.same(k)
	})
}

// NewSource returns a source with keys that have been digested, which it sorts.
func NewSource(kind SourceKind, m *metav1.ObjectMeta, marks SourceMarks, keys []KeyDigest) *Source {
	changed, by := contentChanged(m)
	slices.SortFunc(keys, func(a, b KeyDigest) int { return strings.Compare(a.Key, b.Key) })
	return &Source{
		SourceKey:       SourceKey{kind, m.Namespace, m.Name},
		UID:             m.UID,
		ResourceVersion: m.ResourceVersion,
		Created:         m.CreationTimestamp,
		LastChangeTime:  changed,
		ChangedBy:       by,
		SourceMarks:     marks,
		Keys:            keys,
	}
}

// contentChanged returns when a field manager that owns content last wrote the object, and
// which, else when it was created. It is a function of the object alone, so that all replicas
// agree, also after a restart. As a consequence, a manager that owns content and writes only
// metadata counts as well.
func contentChanged(m *metav1.ObjectMeta) (latest metav1.Time, by FieldManager) {
	latest = m.CreationTimestamp
	for i := range m.ManagedFields {
		entry := &m.ManagedFields[i]
		if entry.Time != nil && !entry.Time.Before(&latest) && ownsContent(entry.FieldsV1) {
			latest, by = *entry.Time, managerOf(entry)
		}
	}
	return latest, by
}

var contentFields = []string{"f:data", "f:binaryData", "f:stringData"}

func ownsContent(fields *metav1.FieldsV1) bool {
	if fields == nil {
		return false
	}
	raw := fields.GetRawBytes()
	switch {
	case bytes.HasPrefix(raw, []byte(`{"f:data":{`)), bytes.HasPrefix(raw, []byte(`{"f:binaryData":{`)):
		return true // as API servers write it
	case !bytes.Contains(raw, []byte(`ata":`)):
		return false
	}
	var top map[string]json.RawMessage
	if err := json.Unmarshal(raw, &top); err != nil {
		return false
	}
	return slices.ContainsFunc(contentFields, func(f string) bool { _, found := top[f]; return found })
}
