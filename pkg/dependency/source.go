// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
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
	// LastChanged is when a client that sets content last wrote the object, to the second.
	LastChanged metav1.Time
	// ChangedBy is the field manager that wrote it at LastChanged; zero: none is known.
	ChangedBy FieldManager
	SourceMarks
	// Keys are in order.
	Keys []KeyDigest
	// content stands for all of them, for those who only count the source.
	content Digest
	// Change is when the content last changed.
	Change Change
	// IgnoredAt and MatchAt are when Ignored and Match last changed. Zero: they have not since
	// the source was first read.
	IgnoredAt, MatchAt Moment
	// undated: the last change only removed keys, or may have. managedFields do not date that, so
	// LastChanged may be that of an earlier change. The first such removal came with version undatedFrom.
	undated     bool
	undatedFrom uint64
	// listedAt is the version that the source had when a list last showed that it had been written; 0: none did. Before that, it may
	// have had other content for a while.
	listedAt uint64
	// deletedAt is an upper bound of when the source was deleted, as a resourceVersion; 0: it was
	// not deleted, or its deletion was missed.
	deletedAt uint64
	// unknown: the source was deleted, and its content has been forgotten.
	unknown bool
	// mounted is what else is known of a SecretProviderClass; nil: it is none.
	mounted *mounted
	// earlier is what is remembered of it; nil: nothing, as of most that there are. See history.
	earlier *history
}

// SourceMarks are what users declare by annotations on a ConfigMap or a Secret.
type SourceMarks struct {
	// Ignored: it never restarts anything.
	Ignored bool
	// Match: it restarts workloads in mode Matched.
	Match bool
	// AllowFields says which workloads may have fields that are set from a Secret.
	AllowFields string
}

// Change says when content changed, as far as this process knows.
type Change struct {
	// Version is an upper bound, as a resourceVersion.
	Version uint64
	// Exact: it is the version of the change, and not just an upper bound.
	Exact bool
	// Seen is when this process saw it; zero for what it found when it began to look.
	Seen time.Time
	// Order is when this process read it; see Moment.
	Order uint64
	// After is the version after which it was made, if it is not exact; 0: that is not known.
	After uint64
	// Since is a time after which it was made; zero: that is not known. What sets content leaves a time by itself.
	Since time.Time
}

// Moment returns when it was.
func (c *Change) Moment() Moment { return Moment{c.Version, c.Order} }

// After completes a source with what was known about it before, or nil. Deleted is what
// was known about a deleted source of the same name, or nil.
func (s *Source) After(previous, deleted *Source, at Arrival) {
	version := ParseVersion(s.ResourceVersion)
	if at.Rekeyed && previous != nil && previous.UID == s.UID && previous.ResourceVersion == s.ResourceVersion {
		s.keepDates(previous)
		return
	}
	if previous != nil && previous.UID != s.UID {
		// The source was deleted and created again. The deletion was missed, so its time is unknown.
		was := *previous
		if !at.Seen.IsZero() {
			h := *was.history()
			h.episodes = addEpisode(h.episodes, episode{Moment: Moment{version, at.Order}, listed: true})
			was.remember(h)
		}
		previous, deleted = nil, &was
	}
	switch {
	case previous != nil && (at.Live || previous.ResourceVersion == s.ResourceVersion):
		s.listedAt = previous.listedAt
	case !at.Live:
		s.listedAt = version
	}
	before := previous
	if before == nil {
		before = deleted
	}
	for i := range s.Keys {
		k := &s.Keys[i]
		switch old := before.key(k.Key); {
		case old == nil:
			k.Version = version
			if was := before.removedKey(k); was != nil && (previous != nil || !before.Ignored || s.Ignored) {
				k.Version, k.Readded = was.written, version
			}
		case old.Digest != k.Digest, old.Binary != k.Binary:
			k.Version = version
		case previous == nil && before.Ignored && !s.Ignored: // it counts since it was deleted
			k.Version = version
		case previous == nil:
			k.Version, k.Returned, k.Readded = old.Version, version, old.Readded
		default:
			k.Version, k.Returned, k.Readded = old.Version, old.Returned, old.Readded
		}
	}
	var h history
	defer func() { s.remember(h) }()
	if before != nil {
		h = *before.history()
		h.removed = s.goneKeys(before, version)
	}
	if at.Rekeyed { // they cannot be compared
		h.past = nil
	}
	h.first = s.firstAfter(before, at)
	switch {
	case previous != nil:
		if s.IgnoredAt = previous.IgnoredAt; previous.Ignored != s.Ignored {
			s.IgnoredAt = Moment{version, at.Order}
		}
		if s.MatchAt = previous.MatchAt; previous.Match != s.Match {
			s.MatchAt = Moment{version, at.Order}
		}
		if slices.Equal(previous.Keys, s.Keys) {
			s.Change, s.undated, s.undatedFrom = previous.Change, previous.undated, previous.undatedFrom
			return
		}
		s.undated = s.LastChanged.Equal(&previous.LastChanged) && !slices.ContainsFunc(s.Keys, func(k KeyDigest) bool {
			old := previous.key(k.Key)
			return old == nil || old.Digest != k.Digest || old.Binary != k.Binary
		})
	case s.Match && before != nil && before.Match: // it counted when it was deleted
		s.MatchAt = before.MatchAt
	case s.Match && !at.Seen.IsZero():
		s.MatchAt = Moment{version, at.Order}
	}
	// A list may show a removal together with a change that was made before it.
	if s.undated = s.undated || !at.Live && before.hasOther(s); s.undated {
		s.undatedFrom = version
		if previous != nil && previous.undated {
			s.undatedFrom = previous.undatedFrom
		}
	}
	s.Change = Change{Version: version, Exact: at.Live, After: at.After, Seen: at.Seen, Order: at.Order}
	if previous != nil && !at.Rekeyed {
		h.past = addPast(previous, s.Change)
	}
	if !at.Seen.IsZero() {
		h.episodes = addEpisode(h.episodes, episode{Moment{version, at.Order}, s.LastChanged.Time, !at.Live})
	}
}

// keepDates completes a source that has not been written, and is read with another key of the hash.
func (s *Source) keepDates(previous *Source) {
	for i := range s.Keys {
		if old := previous.key(s.Keys[i].Key); old != nil {
			s.Keys[i].Version, s.Keys[i].Returned, s.Keys[i].Readded = old.Version, old.Returned, old.Readded
		}
	}
	s.Change, s.IgnoredAt, s.MatchAt, s.listedAt = previous.Change, previous.IgnoredAt, previous.MatchAt, previous.listedAt
	h := *previous.history()
	h.past = nil
	s.remember(h)
	s.undated, s.undatedFrom = previous.undated, previous.undatedFrom
}

// written returns an upper bound of when what a reference reads of a source last changed. Pods that
// can start without a key, or without the source, may have started while it was missing, so that
// its return is a change for them. A file at a subPath may be missing too.
func (s *Source) written(r *Reference) (version uint64) {
	optional := slices.ContainsFunc(r.Uses, func(u Use) bool { return u.Reads() && u.Optional })
	spare := slices.ContainsFunc(r.Uses, func(u Use) bool { return u.Reads() && (u.Optional || u.SubPath || len(u.Keys) == 0) })
	sight := r.sight()
	for i := range s.Keys {
		k := &s.Keys[i]
		if sight.sees(k) == seenNot {
			continue
		}
		version = max(version, k.Version)
		if optional {
			version = max(version, k.Returned)
		}
		if spare {
			version = max(version, k.Readded)
		}
	}
	for _, gone := range s.history().removed {
		if gone.key == "" || sight.sees(&KeyDigest{Key: gone.key, Binary: gone.binary}) != seenNot {
			version = max(version, gone.version)
		}
	}
	return version
}

// LastWritten returns an upper bound on the last change of what r reads of the source.
func (s *Source) LastWritten(r *Reference) Moment { return s.moment(s.written(r)) }

// LastReturned returns when something that r reads of the source was last there again with the content that it had
// before it was missing; zero: it never was.
func (s *Source) LastReturned(r *Reference) (at Moment) {
	version, sight := uint64(0), r.sight()
	for i := range s.Keys {
		if k := &s.Keys[i]; sight.sees(k) != seenNot {
			version = max(version, k.Returned, k.Readded)
		}
	}
	if version > 0 {
		at = s.moment(version)
	}
	return at
}

// Undated reports whether LastChanged may be that of an earlier change than the one at a moment: keys
// were removed then, or later.
func (s *Source) Undated(at Moment) bool { return s.undated && at.Version >= s.undatedFrom }

// Shown returns the keys of the source that a reference sees, sorted.
func (s *Source) Shown(r *Reference) (names []string) {
	sight := r.sight()
	for i := range s.Keys {
		if sight.sees(&s.Keys[i]) != seenNot {
			names = append(names, s.Keys[i].Key)
		}
	}
	return names
}

// KeyDigest is one key and the digest of its content.
type KeyDigest struct {
	Key    string
	Digest Digest
	Binary bool // the key is one of binaryData

	// Version is an upper bound of when it last changed, as a resourceVersion.
	Version uint64
	// Returned is when the source was created again with the same content of the key, as a
	// resourceVersion; 0: it was not.
	Returned uint64
	// Readded is when the key was added again with the same content, as a resourceVersion; 0: it
	// was not.
	Readded uint64
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

// hasData reports whether the source has a key in data.
func (s *Source) hasData(key string) bool {
	k := s.key(key)
	return k != nil && !k.Binary
}

// Has reports whether the source has a key. A nil source has none.
func (s *Source) Has(key string) bool { return s.key(key) != nil }

// hasOther reports whether the source has a key that another one lacks, or may have had. A nil source has none.
func (s *Source) hasOther(other *Source) bool {
	return s != nil && (s.unknown || slices.ContainsFunc(s.Keys, func(k KeyDigest) bool { return !other.Has(k.Key) }))
}

// FromConfigMap digests a ConfigMap and overwrites its content where possible.
func FromConfigMap(d *Digester, cm *corev1.ConfigMap, marks SourceMarks) *Source {
	s := newSource(ConfigMap, &cm.ObjectMeta, marks, len(cm.Data)+len(cm.BinaryData))
	for key, value := range cm.Data {
		s.Keys = append(s.Keys, KeyDigest{Key: key, Digest: d.digest([]byte(value))})
	}
	for key, value := range cm.BinaryData {
		s.Keys = append(s.Keys, KeyDigest{Key: key, Digest: d.Content(value), Binary: true})
	}
	s.complete(d)
	return s
}

// FromSecret digests a Secret and overwrites its content.
func FromSecret(d *Digester, secret *corev1.Secret, marks SourceMarks) *Source {
	s := newSource(Secret, &secret.ObjectMeta, marks, len(secret.Data))
	for key, value := range secret.Data {
		s.Keys = append(s.Keys, KeyDigest{Key: key, Digest: d.Content(value)})
	}
	s.complete(d)
	return s
}

// NewSource returns a source with keys that have been digested already, in any order.
func NewSource(d *Digester, kind SourceKind, m *metav1.ObjectMeta, marks SourceMarks, keys []KeyDigest) *Source {
	s := newSource(kind, m, marks, 0)
	s.Keys = keys
	s.complete(d)
	return s
}

func newSource(kind SourceKind, m *metav1.ObjectMeta, marks SourceMarks, keys int) *Source {
	changed, by := contentChanged(m)
	return &Source{
		SourceKey:       SourceKey{kind, m.Namespace, m.Name},
		UID:             m.UID,
		ResourceVersion: m.ResourceVersion,
		Created:         m.CreationTimestamp,
		LastChanged:     changed,
		ChangedBy:       by,
		SourceMarks:     marks,
		Keys:            make([]KeyDigest, 0, keys),
	}
}

// complete sorts the keys, and digests what stands for them.
func (s *Source) complete(d *Digester) {
	slices.SortFunc(s.Keys, func(a, b KeyDigest) int { return strings.Compare(a.Key, b.Key) })
	s.content = d.digest(AppendContent(nil, &Reference{Kind: s.Kind, Name: s.Name, Uses: Wholly}, s))
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
