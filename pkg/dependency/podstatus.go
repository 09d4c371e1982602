// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"cmp"
	"hash/maphash"
	"math"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The content of a SecretProviderClass is in a store outside of the cluster. What is known of it is what the Secrets Store CSI
// driver writes for each pod that has mounted it: the versions of the objects that the pod has, in a
// SecretProviderClassPodStatus. docs/decisions.md says how its content follows from these.

// PodStatus is the part of a SecretProviderClassPodStatus that is kept.
type PodStatus struct {
	Namespace, Name string
	Class           string
	// Pod is the UID of the pod; empty: the status does not tell it.
	Pod             types.UID
	ResourceVersion string
	// Keys are the identifiers of the first objects, in order, without digests.
	Keys []KeyDigest
	// content stands for all objects and their versions in this process.
	content uint64
	// updated: the driver has replaced what the pod had mounted when it started.
	updated    bool
	generation int64
	// written is when the driver last wrote the content, in seconds, and version an upper bound of that.
	written int64
	version uint64
}

// PodObject is an object of a store, as a pod has mounted it.
type PodObject struct{ ID, Version string }

const (
	// maxPodObjects limits the objects of a status that are kept.
	maxPodObjects = 64
	// maxPodObject limits the identifier of an object, in bytes.
	maxPodObject = 253
)

// FromPodStatus returns what a pod has mounted of a class, or nil if that is nothing.
func FromPodStatus(m *metav1.ObjectMeta, class string, objects []PodObject) *PodStatus {
	if len(objects) == 0 {
		return nil
	}
	s := &PodStatus{
		Namespace: m.Namespace, Name: m.Name, Class: class, ResourceVersion: m.ResourceVersion,
		// The driver creates the object when the pod mounts the volume, and writes it again when it has updated the files. The
		// resource has no subresource for the status, so each such write counts as a generation.
		updated: m.Generation > 1, generation: m.Generation,
		written: statusWritten(m).Unix(), version: ParseVersion(m.ResourceVersion),
	}
	for i := range m.OwnerReferences {
		if owner := &m.OwnerReferences[i]; owner.Kind == "Pod" {
			s.Pod = types.UID(strings.Clone(string(owner.UID)))
		}
	}
	slices.SortFunc(objects, func(a, b PodObject) int {
		return cmp.Or(strings.Compare(a.ID, b.ID), strings.Compare(a.Version, b.Version))
	})
	var h maphash.Hash
	h.SetSeed(seed)
	for _, o := range objects {
		h.Write(appendString(appendString(nil, o.ID), o.Version))
		id := o.ID
		if len(id) > maxPodObject {
			id = strings.ToValidUTF8(id[:maxPodObject], "")
		}
		if last := len(s.Keys) - 1; last+1 < maxPodObjects && (last < 0 || s.Keys[last].Key != id) {
			s.Keys = append(s.Keys, KeyDigest{Key: strings.Clone(id)})
		}
	}
	s.content = h.Sum64()
	return s
}

// statusWritten returns when the status of an object was last written. Other clients may write its metadata.
func statusWritten(m *metav1.ObjectMeta) (at metav1.Time) {
	at = m.CreationTimestamp
	for i := range m.ManagedFields {
		entry := &m.ManagedFields[i]
		if entry.Time != nil && at.Before(entry.Time) && entry.FieldsV1 != nil && containsAny(entry.FieldsV1.GetRawBytes(), statusFields) {
			at = *entry.Time
		}
	}
	return at
}

var statusFields = []string{`"f:status"`}

func (s *PodStatus) class() SourceKey { return SourceKey{SecretProviderClass, s.Namespace, s.Class} }

// comparePodStatuses orders statuses by name.
func comparePodStatuses(a, b *PodStatus) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}

// compareMounts orders the statuses of a class: first those that the driver has updated, the last of them first, and then the
// others, the first of them first.
func compareMounts(a, b *PodStatus) int {
	if c := cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Class, b.Class)); c != 0 {
		return c
	}
	switch {
	case a.updated && !b.updated:
		return -1
	case b.updated && !a.updated:
		return 1
	}
	order := cmp.Or(a.compareWritten(b), strings.Compare(a.Name, b.Name))
	if a.updated {
		return -order
	}
	return order
}

func (s *PodStatus) compareWritten(other *PodStatus) int {
	return cmp.Or(cmp.Compare(s.written, other.written), cmp.Compare(s.version, other.version))
}

// PodStatus returns a status, or nil.
func (g *Graph) PodStatus(namespace, name string) *PodStatus {
	return g.podStatuses.get(PodStatus{Namespace: namespace, Name: name})
}

// EachPodStatus calls f for every status.
func (g *Graph) EachPodStatus(f func(*PodStatus)) { g.podStatuses.each(f) }

// SetPodStatus adds a status or replaces the one of the same name, and returns the classes that it is, or was, about.
func (g *Graph) SetPodStatus(s *PodStatus) (classes []SourceKey) {
	before := g.PodStatus(s.Namespace, s.Name)
	next := *s // the reflector may still have it
	if before != nil && before.generation == s.generation && before.content == s.content && before.Class == s.Class && before.Pod == s.Pod {
		next.written, next.version = before.written, before.version // only metadata has been written
	}
	if before != nil {
		g.mounts.delete(*before)
	}
	g.podStatuses.set(&next, &next)
	g.mounts.set(&next, &next)
	if before != nil && before.Class != next.Class {
		g.setClass(before.class())
		classes = append(classes, before.class())
	}
	g.setClass(next.class())
	return append(classes, next.class())
}

// DeletePodStatus removes a status, if it exists, and returns the class that it was about.
func (g *Graph) DeletePodStatus(namespace, name string) (classes []SourceKey) {
	s := g.PodStatus(namespace, name)
	if s == nil {
		return nil
	}
	g.mounts.delete(*s)
	g.podStatuses.delete(*s)
	g.setClass(s.class())
	return []SourceKey{s.class()}
}

// setClass makes the source of a class what its statuses say: it exists as long as a pod has mounted it, and was last written when the driver last updated
// the files of one. Which content a pod has is told by its own status.
func (g *Graph) setClass(key SourceKey) {
	var last *PodStatus
	begin := PodStatus{Namespace: key.Namespace, Class: key.Name, updated: true, written: math.MaxInt64}
	g.mounts.from(begin, func(_ *PodStatus, s *PodStatus) bool {
		if s.class() == key {
			last = s
		}
		return false
	})
	if last == nil {
		g.sources.delete(key)
		return
	}
	s := &Source{SourceKey: key, ResourceVersion: last.ResourceVersion, Keys: last.Keys}
	if last.updated {
		s.LastChangeTime = metav1.Unix(last.written, 0)
	}
	g.sources.set(&s.SourceKey, s)
}
