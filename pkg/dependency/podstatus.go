// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"cmp"
	"encoding/hex"
	"hash/maphash"
	"math"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The content of a SecretProviderClass is in a store outside of the cluster. What is known of it is what the Secrets Store CSI
// driver writes for each pod that has mounted it: the versions of the objects that the pod has, in a
// SecretProviderClassPodStatus. docs/design/the-content-of-a-secretproviderclass.md says how its content follows from these.

// PodStatus is the part of a SecretProviderClassPodStatus that is kept.
type PodStatus struct {
	Namespace, Name string
	Class           string
	ResourceVersion string
	// Keys are the identifiers of the objects, in order, each with the digest of its version.
	Keys []KeyDigest
	// content stands for these in this process, whatever the key of the digests is.
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
	// maxPodObjects limits the objects of a status that are kept one by one.
	maxPodObjects = 64
	// maxPodObject limits the identifier of an object, in bytes.
	maxPodObject = 253
	// otherPodObjects stands for those above the limit. It is longer than an identifier, so that it equals none.
	otherPodObjects = "all other objects "
)

// FromPodStatus digests what a pod has mounted of a class. It returns nil if that is nothing.
func FromPodStatus(d *Digester, m *metav1.ObjectMeta, class string, objects []PodObject) *PodStatus {
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
	slices.SortFunc(objects, func(a, b PodObject) int {
		return cmp.Or(strings.Compare(a.ID, b.ID), strings.Compare(a.Version, b.Version))
	})
	var h maphash.Hash
	h.SetSeed(seed)
	write := func(text string) { h.Write(appendString(nil, text)) }
	var rest []byte
	for i, o := range objects {
		write(o.ID)
		write(o.Version)
		if i >= maxPodObjects {
			rest = appendString(appendString(rest, o.ID), o.Version)
			continue
		}
		id := o.ID
		if len(id) > maxPodObject {
			digest := d.digest([]byte(id))
			id = strings.ToValidUTF8(id[:maxPodObject], "") + hex.EncodeToString(digest[:])
		}
		if last := len(s.Keys) - 1; last >= 0 && s.Keys[last].Key == id { // listed twice
			s.Keys[last].Digest = d.digest(appendString(s.Keys[last].Digest[:], o.Version))
			continue
		}
		s.Keys = append(s.Keys, KeyDigest{Key: strings.Clone(id), Digest: d.digest([]byte(o.Version))})
	}
	if rest != nil {
		s.Keys = append(s.Keys, KeyDigest{Key: otherPodObjects + strings.Repeat(".", maxPodObject), Digest: d.digest(rest)})
	}
	slices.SortFunc(s.Keys, func(a, b KeyDigest) int { return strings.Compare(a.Key, b.Key) })
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

// SetPodStatus adds a status or replaces the one of the same name, and returns the classes whose content it says, or said.
func (g *Graph) SetPodStatus(s *PodStatus, at Arrival) (classes []SourceKey) {
	before := g.PodStatus(s.Namespace, s.Name)
	next := *s // the reflector may still have it
	if before != nil && before.generation == s.generation && before.content == s.content && before.Class == s.Class {
		next.written, next.version = before.written, before.version // only metadata has been written
	}
	g.shareKeys(&next)
	if before != nil {
		g.mounts.delete(*before)
	}
	g.podStatuses.set(&next, &next)
	g.mounts.set(&next, &next)
	if before != nil && before.Class != next.Class {
		g.setClass(before.class(), at)
		classes = append(classes, before.class())
	}
	g.setClass(next.class(), at)
	return append(classes, next.class())
}

// DeletePodStatus removes a status, if it exists, and returns the class whose content it said.
func (g *Graph) DeletePodStatus(namespace, name string, at Arrival) (classes []SourceKey) {
	s := g.PodStatus(namespace, name)
	if s == nil {
		return nil
	}
	g.mounts.delete(*s)
	g.podStatuses.delete(*s)
	g.setClass(s.class(), at)
	return []SourceKey{s.class()}
}

// shareKeys lets statuses with the same content share their keys, as nearly all of a class do.
func (g *Graph) shareKeys(s *PodStatus) {
	for _, other := range g.said(s.class()).all() {
		if other.content == s.content && slices.Equal(other.Keys, s.Keys) {
			s.Keys = other.Keys
			return
		}
	}
}

// said is what statuses say about the content of a class.
type said struct {
	// update is the last update of mounted files, and first the first of those that brought the same content; nil: there was
	// none.
	update, first *PodStatus
	// mount is the first mount after it; nil: there was none.
	mount *PodStatus
}

func (s said) all() []*PodStatus {
	return slices.DeleteFunc([]*PodStatus{s.update, s.mount}, func(s *PodStatus) bool { return s == nil })
}

// current returns the status that has the content of the class; nil: none has.
func (s said) current() *PodStatus {
	if s.mount != nil {
		return s.mount
	}
	return s.update
}

// isUpdate reports whether pods are known that have had other content than that of the class.
func (s said) isUpdate() bool {
	return s.update != nil && (s.mount == nil || s.mount.content == s.update.content)
}

// maxUpdates limits how many updates are looked at to find the first of those with the same content.
const maxUpdates = 256

// said looks for what is said about a class. What it costs does not depend on the number of pods.
func (g *Graph) said(class SourceKey) (out said) {
	begin := PodStatus{Namespace: class.Namespace, Class: class.Name, updated: true, written: math.MaxInt64}
	looked := 0
	g.mounts.from(begin, func(_ *PodStatus, s *PodStatus) bool {
		if s.class() != class || !s.updated || out.update != nil && s.content != out.update.content {
			return false
		}
		if out.update == nil {
			out.update = s
		}
		out.first = s
		looked++
		return looked < maxUpdates
	})
	begin = PodStatus{Namespace: class.Namespace, Class: class.Name, written: math.MinInt64}
	if out.update != nil {
		begin.written, begin.version = out.update.written, out.update.version
	}
	g.mounts.from(begin, func(_ *PodStatus, s *PodStatus) bool {
		if s.class() == class {
			out.mount = s
		}
		return false
	})
	return out
}

// mounted is what is known of the content of a SecretProviderClass besides the content itself.
type mounted struct {
	content uint64 // of what is the current content of the source; see PodStatus
	// unproven: no pod is known that has other content in memory than this, and has had files of it since. Pods have it because
	// they mounted it, or it was the content before.
	unproven bool
	// proven is the last content that was no such, in the same form, with its keys, and update the update that brought it; zero:
	// there was none, and it is that with which the class was first read.
	proven     uint64
	provenKeys []KeyDigest
	update     PodStatus
}

// Unproven reports whether it is not known of the content of a SecretProviderClass that pods have to be restarted to read it.
func (s *Source) Unproven() bool { return s.mounted != nil && s.mounted.unproven }

// setClass makes the content of a class what its statuses say.
func (g *Graph) setClass(key SourceKey, at Arrival) {
	said, before := g.said(key), g.sources.get(key)
	current := said.current()
	if current == nil {
		if before != nil {
			g.sources.delete(key)
			g.aggregateChanged(before, nil, Change{Version: before.Change.Version})
		}
		return
	}
	s := &Source{SourceKey: key, ResourceVersion: current.ResourceVersion, Keys: slices.Clone(current.Keys)}
	if said.first != nil {
		s.LastChanged = metav1.Unix(said.first.written, 0)
	}
	s.complete(g.digester)
	switch {
	case before == nil, at.Seen.IsZero() && !at.Rekeyed:
		s.beginClass(said, at)
	case said.isUpdate() && said.update.content != before.mounted.proven && before.mounted.update.compareWritten(said.first) < 0:
		s.changeClass(before, said, at)
	default:
		s.continueClass(before, said, at)
	}
	s.mounted.content = current.content
	g.sources.set(&s.SourceKey, s)
	g.aggregateChanged(before, s, Change{})
	g.order = max(g.order, s.Change.Order)
}

// beginClass completes a class of which nothing was known before, or nothing but what belongs to the same first list.
func (s *Source) beginClass(said said, at Arrival) {
	current := said.current()
	s.mounted = &mounted{unproven: !said.isUpdate(), proven: current.content, provenKeys: s.Keys}
	s.Change = Change{Version: current.version, Order: at.Order}
	if said.first != nil {
		s.mounted.update = *said.first
		if said.isUpdate() {
			s.Change.Version = said.first.version
		}
	}
	for i := range s.Keys {
		s.Keys[i].Version = s.Change.Version
	}
}

// changeClass completes a class whose content has been seen to change.
func (s *Source) changeClass(before *Source, said said, at Arrival) {
	was, shown := *before, s.ResourceVersion
	was.Keys = before.mounted.provenKeys
	s.ResourceVersion = said.first.ResourceVersion
	changed := s.LastChanged
	s.After(&was, nil, at)
	s.ResourceVersion, s.LastChanged = shown, changed
	s.mounted = &mounted{proven: said.update.content, provenKeys: s.Keys, update: *said.first}
}

// continueClass completes a class whose content is as it was, or is other content that is no change: pods have mounted it, or
// what had been the content before is again that of all pods that are left.
func (s *Source) continueClass(before *Source, said said, at Arrival) {
	next := *before.mounted
	next.unproven = !said.isUpdate() || said.update.content != next.proven
	s.Change, s.undated, s.undatedFrom = before.Change, before.undated, before.undatedFrom
	h := *before.history()
	if at.Rekeyed { // they cannot be compared
		h.past = nil
	}
	s.remember(h)
	for i := range s.Keys {
		k := &s.Keys[i]
		k.Version = s.Change.Version
		if old := before.key(k.Key); old != nil {
			k.Version, k.Returned, k.Readded = old.Version, old.Returned, old.Readded
		}
	}
	if said.current().content == next.proven {
		next.provenKeys = s.Keys
	}
	s.mounted = &next
}
