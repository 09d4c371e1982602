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

// Source is what remains of a ConfigMap or a Secret once it has been read.
type Source struct {
	SourceKey
	UID             types.UID
	ResourceVersion string
	Created         metav1.Time
	// LastChanged is when a client that sets content last wrote the object, to the second.
	LastChanged metav1.Time
	// Ignored: the source never restarts anything. Match: it restarts the workloads that
	// ask for sources so marked.
	Ignored, Match bool
	// Keys are in order.
	Keys []KeyDigest
	// Change is when the content last changed.
	Change Change
}

// The annotations that users set on ConfigMaps and Secrets, with the value "true".
const (
	IgnoreAnnotation = "configdep.io/ignore"
	MatchAnnotation  = "configdep.io/match"
)

// Change tells when content changed, as far as this process knows.
type Change struct {
	// Version is an upper bound, as a resourceVersion.
	Version uint64
	// Exact: it is no bound only, but the version.
	Exact bool
	// Seen is when this process saw it; zero for what it found when it began to look.
	Seen time.Time
}

// After completes a source by what was known of it before, or nil, and by when it was
// seen: zero for the first list. Live tells that it comes from an event, so that nothing
// can have happened in between.
func (s *Source) After(previous *Source, seen time.Time, live bool) {
	version := versionOf(s.ResourceVersion)
	for i := range s.Keys {
		k := &s.Keys[i]
		if before := previous.key(k.Key); before != nil && before.Digest == k.Digest && before.Binary == k.Binary {
			k.Version = before.Version
		} else {
			k.Version = version
		}
	}
	if previous != nil && slices.Equal(previous.Keys, s.Keys) {
		s.Change = previous.Change
		return
	}
	s.Change = Change{Version: version, Exact: live, Seen: seen}
}

// written returns an upper bound of when any of some keys, of those that are there, last
// changed. A nil source has none.
func (s *Source) written(keys []string) (version uint64) {
	for _, key := range keys {
		if k := s.key(key); k != nil {
			version = max(version, k.Version)
		}
	}
	return version
}

// KeyDigest stands for one key and its content.
type KeyDigest struct {
	Key    string
	Digest Digest
	Binary bool // the key is one of binaryData

	// Version is an upper bound of when it last changed, as a resourceVersion.
	Version uint64
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

// Has tells whether the source has a key. A nil source has none.
func (s *Source) Has(key string) bool { return s.key(key) != nil }

// FromConfigMap digests a ConfigMap, whose content it overwrites where it can.
func FromConfigMap(d *Digester, cm *corev1.ConfigMap) *Source {
	s := newSource(ConfigMap, &cm.ObjectMeta, len(cm.Data)+len(cm.BinaryData))
	for key, value := range cm.Data {
		s.Keys = append(s.Keys, KeyDigest{Key: key, Digest: d.digest([]byte(value))})
	}
	for key, value := range cm.BinaryData {
		s.Keys = append(s.Keys, KeyDigest{Key: key, Digest: d.Content(value), Binary: true})
	}
	s.sortKeys()
	return s
}

// FromSecret digests a Secret and overwrites its content.
func FromSecret(d *Digester, secret *corev1.Secret) *Source {
	s := newSource(Secret, &secret.ObjectMeta, len(secret.Data))
	for key, value := range secret.Data {
		s.Keys = append(s.Keys, KeyDigest{Key: key, Digest: d.Content(value)})
	}
	s.sortKeys()
	return s
}

// NewSource returns a source with keys that have been digested already, in any order.
func NewSource(kind SourceKind, m *metav1.ObjectMeta, keys []KeyDigest) *Source {
	s := newSource(kind, m, 0)
	s.Keys = keys
	s.sortKeys()
	return s
}

func newSource(kind SourceKind, m *metav1.ObjectMeta, keys int) *Source {
	return &Source{
		SourceKey:       SourceKey{kind, m.Namespace, m.Name},
		UID:             m.UID,
		ResourceVersion: m.ResourceVersion,
		Created:         m.CreationTimestamp,
		LastChanged:     contentChanged(m),
		Ignored:         m.Annotations[IgnoreAnnotation] == "true",
		Match:           m.Annotations[MatchAnnotation] == "true",
		Keys:            make([]KeyDigest, 0, keys),
	}
}

func (s *Source) sortKeys() {
	slices.SortFunc(s.Keys, func(a, b KeyDigest) int { return strings.Compare(a.Key, b.Key) })
}

// contentChanged returns when a field manager that owns content last wrote the object,
// else when it was created. It is a function of the object alone, so that every replica
// and a restarted one say the same. The price: a manager that owns content and writes
// metadata only counts as well.
func contentChanged(m *metav1.ObjectMeta) metav1.Time {
	latest := m.CreationTimestamp
	for i := range m.ManagedFields {
		entry := &m.ManagedFields[i]
		if entry.Time != nil && latest.Before(entry.Time) && ownsContent(entry.FieldsV1) {
			latest = *entry.Time
		}
	}
	return latest
}

var contentFields = []string{"f:data", "f:binaryData", "f:stringData"}

func ownsContent(fields *metav1.FieldsV1) bool {
	if fields == nil {
		return false
	}
	raw := fields.GetRawBytes()
	if !bytes.Contains(raw, []byte(`ata":`)) {
		return false
	}
	var top map[string]json.RawMessage
	if err := json.Unmarshal(raw, &top); err != nil {
		return false
	}
	return slices.ContainsFunc(contentFields, func(f string) bool { _, found := top[f]; return found })
}
