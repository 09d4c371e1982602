// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// record returns the record of a workload, if there is one.
func record(s *state) string {
	if hash := s.annotations[hashAnnotation]; hash != "" {
		return hash
	}
	return s.template.Annotations[hashAnnotation]
}

// comparable reports whether a workload has a record with the current key of the hash.
func (o *oracle) comparable(s *state) bool {
	hash := record(s)
	return hash != "" && (o.formerKey == "" || !strings.HasPrefix(hash, o.formerKey))
}

// knows reports whether the last record contains a source.
func (w *workload) knows(name string) bool {
	unit, found := w.recorded[name]
	return found && unit == w.rules().unit(w.variant, name)
}

// ruled records that annotations have changed. For sources that begin to count, the current content counts as the
// content with which the pods were started, unless the record knows better; a record that is older than the
// template does not.
func (w *workload) ruled(before rules) {
	now := w.rules()
	if !now.managed() {
		w.adopting, w.kept = false, nil
		return
	}
	for _, name := range now.counted(w.variant) {
		if before.managed() && before.counts(w.variant, name) {
			continue
		}
		w.counts[name] = w.cell.revision
		if !w.knows(name) || w.recordedAt < w.startedAt {
			w.adopt(name, w.cell.revision)
			w.adopting = w.adopting || !w.cell.oracle.undisturbed
		}
	}
}

// adopt makes the content at a revision count as the content with which older pods were started.
func (w *workload) adopt(name string, at int64) {
	read, found := w.cell.reading(w.variant, name, at)
	for _, p := range w.pods {
		if !found || p.waiting || p.variant != w.variant || max(p.at, p.adopted[name]) >= at {
			continue
		}
		if p.adopted[name] = at; p.read[name] != read {
			w.log("pods of r%d: %s is adopted with its content at r%d:%s", p.at, name, at, read)
			p.read[name] = read
		}
	}
}

// noteRecord handles a record of the current content.
func (w *workload) noteRecord() {
	w.adopting, w.mixed, w.kept, w.recorded, w.remembered = false, false, nil, map[string]string{}, w.read
	w.recordedAt, w.decidedAt = w.cell.revision, w.cell.revision
	for _, name := range w.rules().counted(w.variant) {
		w.recorded[name] = w.rules().unit(w.variant, name)
	}
}

// baseline handles a record without a restart. For a source without a previous record, it adopts the content at
// the time when the source began to count, or when the process that writes the record began to know the order of
// events. The process must have known about later changes.
func (w *workload) baseline(before *state) {
	w.cell.oracle.tally.baselines++
	w.log("the server has recorded the current content: %s", record(w.state))
	switch {
	case strings.HasSuffix(record(w.state), ".mixed"):
		w.noteMixed()
		return
	case strings.HasSuffix(record(w.state), ".abandoned"):
		w.noteAbandoned(before)
		return
	}
	writers := w.writers(before)
	for _, name := range w.rules().counted(w.variant) {
		if !w.cell.oracle.comparable(before) || !w.knows(name) {
			w.adopt(name, w.adoptedAt(name, writers))
		}
	}
	if record(w.state) != w.hash {
		w.hash = "" // the pods of the last rollout have read newer content
	}
	w.noteRecord()
	w.decidedAt = before.version // at the earliest: the patch is bound to this version
	if before.annotations[hashAnnotation] == "" {
		w.decidedAt = min(w.decidedAt, w.startedAt) // another server may have seen more since the pods started
	}
}

// adoptedAt returns the revision from which on processes, each of which may have written a record, must have known
// that a source changed.
func (w *workload) adoptedAt(name string, writers []*process) int64 {
	at := w.counts[name]
	for _, p := range writers {
		switch unit, kept := w.kept[name]; {
		case !kept || unit != w.rules().unit(w.variant, name):
			at = max(at, p.knows(w.counts[name]))
		case p.saw(w.removedAt): // it remembers the record
		default:
			at = max(at, p.knows(w.counts[name]), p.knows(w.removedAt))
		}
	}
	return min(at, w.cell.revision)
}

// noteMixed judges a record that some pods may have been started with other content than others, and allows the
// restart that follows. The server has verified the pods, and their times do not show the order: all events of a
// history are closer together than clocks may differ. But there must be a reason for the verification.
func (w *workload) noteMixed() {
	w.cell.oracle.tally.mixed++
	var sources map[string]string
	if err := json.Unmarshal([]byte(w.state.annotations[appliedAnnotation]), &sources); err != nil {
		w.violation("recorded sources that cannot be parsed: %v", err)
	}
	found := false
	for id, entry := range sources {
		if !strings.HasSuffix(entry, ".mixed.") {
			continue
		}
		found = true
		isOf := func(name string) bool { return matches(strings.ToLower(id), name) && w.mayBeMixed(name) }
		if !slices.ContainsFunc(sourceNames, isOf) {
			w.violation("recorded that pods may differ in %s, for which there is no reason", id)
		}
	}
	if !found {
		w.violation("recorded that pods may differ, but in no source")
	}
	w.differing()
}

// noteAbandoned judges a record that pods are left which were to be evicted, and allows the restart that follows
// when the workload opts in again.
func (w *workload) noteAbandoned(before *state) {
	if before.annotations[recreatingAnnotation] == "" || w.state.annotations[recreatingAnnotation] != "" {
		w.violation("recorded that pods are left which were to be evicted, but there were none")
	}
	w.differing()
}

// differing handles a record that pods differ.
func (w *workload) differing() {
	w.hash, w.mixed, w.recordedAt, w.decidedAt = "", true, w.cell.revision, w.cell.revision
	w.changes, w.since = max(w.changes, w.rollouts+1), w.since+1
}

// mayBeMixed reports whether there is a reason to verify what the pods have read of a source: the source has
// changed and changed back to the recorded content, or pods of the template may be older than its rollout, because
// that began before the previous one was complete. The number of a Deployment's ReplicaSet shows whether it is
// new; a revision of other kinds does not, so its pods may be as old as the workload.
func (w *workload) mayBeMixed(name string) bool {
	now, decided := w.cell.revision, min(w.recordedAt, w.decidedAt)
	return w.cell.differed(w.variant, name, decided, now) ||
		w.unsure && (w.reused || w.kind != "Deployment" || !w.counted()) && decided <= w.startedAt && w.cell.changed(w.variant, name, w.createdAt, now)
}

// checkHash checks that a hash stands for one content of one namespace, and that this content has one hash.
func (w *workload) checkHash() {
	r, hash := w.rules(), w.state.annotations[hashAnnotation]
	read := w.cell.namespace + ":"
	for _, name := range r.counted(w.variant) {
		if w.cell.sources[name] == nil && r.onlyGlob(w.variant, name) {
			continue // a glob only matches existing sources
		}
		read += fmt.Sprintf(" %s (%s)%s", name, scopeOf(w.variant, name), w.read[name])
	}
	by := fmt.Sprintf("%s, %d %s", read, w.variant, r.sources) // sources of a pattern are not hashed if they are absent
	hashes := w.cell.oracle.hashes
	if other, found := hashes[hash]; found && other != read {
		w.violation("hash %s stands for %q and for %q", hash, read, other)
	}
	if other, found := hashes[by]; found && other != hash {
		w.violation("%q has the hashes %s and %s", read, hash, other)
	}
	hashes[hash], hashes[by] = read, hash
}

// rekeyed records that the key of the hash is about to be replaced. Then records can no longer be compared. The
// content of records that can no longer be written is forgotten.
func (o *oracle) rekeyed() {
	o.hashes = map[string]string{}
	for _, p := range o.servers {
		p.synced = notYet // replicas read everything again
	}
	o.each(func(w *workload) {
		if hash := record(w.state); hash != "" {
			o.formerKey = hash[:strings.LastIndexByte(hash, '.')+1]
		}
		if !w.starts || !w.managed() {
			w.recorded, w.adopting = nil, w.managed()
		}
	})
}
