// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// source is a ConfigMap or a Secret.
type source struct {
	mark
	uid     int
	version uint64
	created time.Time
	content content
	// changed is the revision of the last change of content or presence.
	changed uint64
	// written and labelled are the times in managedFields of the last write by the owner, who sets the content,
	// and by a client that only sets labels.
	written, labelled time.Time
	// patched is when another client last set a key besides the owner's, and patchedKey is that key; zero: nothing is left of that.
	patched     time.Time
	patchedKey  int
	label, note int
	gone        content // the content with which it was last deleted
	immutable   bool
}

// rewriting is a change of the content of a source, or of its presence: from the state of one revision to that of another.
type rewriting struct {
	from, to uint64
	at       time.Time
	dated    bool
	was, is  content
}

func seconds(t time.Time) time.Time { return t.Truncate(time.Second) }

// object returns the source as an API object. The caller may overwrite its content.
func (s *source) object(slot int) runtime.Object {
	m := metav1.ObjectMeta{
		Namespace: namespace, Name: sourceNames[slot], UID: types.UID(fmt.Sprint("source-", s.uid)),
		ResourceVersion: fmt.Sprint(s.version), CreationTimestamp: metav1.NewTime(seconds(s.created)),
		Labels: map[string]string{"label": fmt.Sprint(s.label)}, Annotations: map[string]string{"note": fmt.Sprint(s.note)},
	}
	if s.ignored {
		m.Annotations[ignoreAnnotation] = "true"
	}
	if s.match {
		m.Annotations[matchAnnotation] = "true"
	}
	m.ManagedFields = []metav1.ManagedFieldsEntry{fields("owner", s.written, `{"f:data":{".":{}}}`)}
	if !s.patched.IsZero() {
		m.ManagedFields = append(m.ManagedFields, fields("patcher", s.patched, `{"f:data":{"f:`+keyNames[s.patchedKey]+`":{}}}`))
	}
	if !s.labelled.IsZero() {
		m.ManagedFields = append(m.ManagedFields, fields("labeller", s.labelled, `{"f:metadata":{"f:labels":{"f:label":{}}}}`))
	}
	var immutable *bool
	if s.immutable {
		immutable = new(true)
	}
	if isSecret(slot) {
		o := &corev1.Secret{ObjectMeta: m, Data: map[string][]byte{}, Immutable: immutable}
		for k, v := range s.content {
			if v != 0 {
				o.Data[keyNames[k]] = []byte{'0' + byte(v)}
			}
		}
		return o
	}
	o := &corev1.ConfigMap{ObjectMeta: m, Data: map[string]string{}, Immutable: immutable}
	for k, v := range s.content {
		if v != 0 {
			o.Data[keyNames[k]] = string(rune('0' + v))
		}
	}
	return o
}

func fields(manager string, at time.Time, raw string) metav1.ManagedFieldsEntry {
	t := metav1.NewTime(seconds(at))
	return metav1.ManagedFieldsEntry{
		Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: &t,
		FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(raw),
	}
}

// createSource creates a source, if it is absent.
func (w *world) createSource(slot int, c content) bool {
	s := &w.sources[slot]
	if s.present || c == (content{}) || w.terminating {
		return false
	}
	w.uids++
	now := w.apiTime()
	was := *s
	*s = source{mark: mark{present: true}, uid: w.uids, created: now, written: now, content: c, gone: was.gone}
	w.wroteSource(slot, was.content, was.present, true)
	return true
}

func (w *world) deleteSource(slot int) bool {
	s := &w.sources[slot]
	if !s.present {
		return false
	}
	was := s.content
	s.mark, s.content, s.gone, s.immutable = mark{}, content{}, was, false
	w.wroteSource(slot, was, true, false)
	return true
}

// setContent writes the content of a source as its owner. As in kube-apiserver, its time in managedFields does not
// change if keys are only removed, unless the write is a server-side apply.
func (w *world) setContent(slot int, c content, applied bool) bool {
	s := &w.sources[slot]
	if !s.present || s.content == c || c == (content{}) || s.immutable {
		return false
	}
	dated := applied
	for k, v := range c {
		dated = dated || v != 0 && v != s.content[k]
	}
	if dated {
		s.written = w.apiTime()
	}
	was := s.content
	s.content = c
	w.wroteSource(slot, was, true, dated)
	return true
}

// patchKey lets another client set a key that is not there, or remove it again, after which managedFields say nothing of that client.
func (w *world) patchKey(slot, key int, v value) bool {
	s := &w.sources[slot]
	was := s.content
	switch {
	case !s.present || s.immutable:
		return false
	case s.patched.IsZero() && was[key] == 0:
		s.content[key], s.patched, s.patchedKey = v, w.apiTime(), key
	case !s.patched.IsZero() && was[s.patchedKey] != 0:
		s.content[s.patchedKey], s.patched = 0, time.Time{}
	default:
		return false
	}
	w.oracle.tally["keys set and removed by another client"]++
	w.wroteSource(slot, was, true, !s.patched.IsZero())
	return true
}

// lastWritten is when the content was last written, as managedFields say.
func (s *source) lastWritten() time.Time {
	if s.patched.After(s.written) {
		return s.patched
	}
	return s.written
}

// editSource writes metadata of a source, as its owner or another client.
func (w *world) editSource(slot int, owner bool) bool {
	s := &w.sources[slot]
	if !s.present {
		return false
	}
	if owner {
		s.note++
		s.written = w.apiTime()
	} else {
		s.label++
		s.labelled = w.apiTime()
	}
	w.wroteSource(slot, s.content, true, true)
	return true
}

// makeImmutable keeps the content of a source as it is until it is deleted.
func (w *world) makeImmutable(slot int) bool {
	s := &w.sources[slot]
	if !s.present || s.immutable {
		return false
	}
	s.immutable, s.written = true, w.apiTime()
	w.oracle.tally["sources that became immutable"]++
	w.wroteSource(slot, s.content, true, true)
	return true
}

// hasImmutable reports whether a source is immutable: with one that it reads, no workload is restarted in place.
func (w *world) hasImmutable() bool {
	return slices.ContainsFunc(w.sources[:], func(s source) bool { return s.immutable })
}

// markSource toggles an annotation of a source.
func (w *world) markSource(slot int, match bool) bool {
	s := &w.sources[slot]
	if !s.present {
		return false
	}
	if match {
		s.match = !s.match
	} else {
		s.ignored = !s.ignored
	}
	s.labelled = w.apiTime()
	w.wroteSource(slot, s.content, true, true)
	return true
}

// wroteSource emits the event of a source that was written, given its previous content and presence. Dated: the write left its time, which tells if it is
// another second than before.
func (w *world) wroteSource(slot int, was content, present, dated bool) {
	w.revision++
	s := &w.sources[slot]
	s.version = w.revision
	changed := s.content != was || s.present != present
	dated = dated && (!present || !seconds(s.lastWritten()).Equal(w.dates[slot]))
	w.dates[slot] = seconds(s.lastWritten())
	if changed {
		w.changes[slot] = append(w.changes[slot], rewriting{s.changed, w.revision, time.Now(), dated, was, s.content})
		s.changed = w.revision
	}
	copied := *s
	w.emit(event{stream: sourceStream(slot), slot: slot, source: &copied})
	if changed {
		w.contentChanged(slot)
	}
	w.agentsSee(slot)
}
