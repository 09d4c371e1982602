// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"cmp"
	"encoding/json"
	"slices"
)

// record holds the annotations that remember with which content the pods were started, and
// the restart for which they were written.
type record struct {
	hash, sources, verified, recreating, reload string
	// rekeyed: the annotations express it by a key of the hash that has been replaced.
	rekeyed bool
}

// dateRecord finds out when the record was written, and reports whether it was by this state of the same object. Previous
// may be another object.
func (w *Workload) dateRecord(previous, before *Workload, at Arrival) (written bool) {
	switch {
	case w.record().hash == "":
	case before == nil:
		if at.Live || previous != nil { // it was created with it, or has got it since
			w.RecordedAt = w.written(at)
		}
	case w.record().says(before.record()) && (w.dropped != nil || !before.RecordRekeyed()): // else it was written with the key
		w.RecordedAt, w.RecordedWithTemplate, w.RecordedFirst, w.restart = before.RecordedAt, before.RecordedWithTemplate, before.RecordedFirst, before.restart
		if w.RecordedAgain = before.RecordedAgain; before.RecordDropped() && !w.RecordDropped() {
			w.RecordedAgain = w.written(at).Version
		}
	default:
		w.RecordedAt, w.RecordedWithTemplate = w.written(at), before.template != w.template
		// Else it is of a restart, or the pods were looked up.
		w.RecordedFirst = at.Live && before.record().hash == "" && w.LastReload() == before.LastReload() && w.Marks.Verified == ""
		if w.RecordedWithTemplate && at.Live && w.writtenByUs {
			w.restart = w.template
		}
		return true
	}
	return false
}

// leftTemplate is a template that was replaced, with what was recorded of its pods then.
type leftTemplate struct {
	template uint64
	remembered
}

// remembered is a record without what only matters while it stands.
type remembered struct{ hash, sources string }

// undone is what was recorded of the pods before a restart that was undone, and that restart, which another client may
// have removed with the template.
type undone struct {
	remembered
	reload string
}

// maxLeftBytes bounds the records of templates that are remembered of a workload. It is the limit of all annotations of
// an object, so that they take no more than these. The first are forgotten.
const maxLeftBytes = 256 << 10

// keepLeft remembers what was recorded of the pods of templates that may still have some. A restart records the
// content of its time; when its template is replaced by the one before and the record stays, it says nothing of the pods
// that were never replaced. A list may show no more of that than the record of a restart whose template is gone.
func (w *Workload) keepLeft(before *Workload, samePods, written bool, at Arrival) {
	was := remembered{before.record().hash, before.record().sources}
	switch {
	case before.recordBefore != nil: // the record is about pods that there are none of yet
		was = *before.recordBefore
	case before.undone != nil:
		was = before.undone.remembered
	}
	switch {
	case !samePods:
		if !before.completed { // else no other has pods
			w.left = before.left
		}
		w.left = addLeft(w.left, leftTemplate{before.applied, was})
		if i := slices.IndexFunc(w.left, func(l leftTemplate) bool { return l.template == w.applied }); i >= 0 {
			w.undone = &undone{w.left[i].remembered, cmp.Or(w.LastReload(), before.LastReload())}
		}
		return
	case !w.completed:
		w.left = before.left
	}
	switch {
	case w.TemplatePending && written && w.RecordedWithTemplate:
		w.recordBefore = &was
		return
	case w.TemplatePending:
		w.recordBefore = before.recordBefore
	case before.recordBefore != nil && !written: // the template of the pods is back
		w.undone = &undone{was, cmp.Or(w.LastReload(), before.LastReload())}
		return
	}
	switch {
	case !written:
		w.undone = before.undone
	case !at.Live && w.LastReload() != before.LastReload() && !w.evicted():
		w.undone = &undone{was, w.LastReload()}
	}
}

// addLeft returns the last templates. Values in the graph are immutable.
func addLeft(before []leftTemplate, l leftTemplate) []leftTemplate {
	if l.template == 0 || l.hash == "" { // it is not known, or says nothing
		return before
	}
	left := slices.DeleteFunc(slices.Clone(before), func(other leftTemplate) bool { return other.template == l.template })
	left = append(left, l)
	bytes := 0
	for i := range slices.Backward(left) {
		if bytes += len(left[i].sources); bytes > maxLeftBytes || len(left)-i > maxTemplates {
			return slices.Clone(left[i+1:])
		}
	}
	return left
}

// evicted reports whether the last restart was made by evicting pods or in place, without another template.
func (w *Workload) evicted() bool {
	var last struct{ Evicted bool }
	return json.Unmarshal([]byte(w.LastReload()), &last) == nil && last.Evicted
}

// Undone returns what was recorded of the pods before a restart, in the form of Record, and that restart, in the form of
// LastReload, if it was undone or may have been. Without a restart it was an edit of the template.
func (w *Workload) Undone() (hash, sources, reload string, is bool) {
	if w.undone == nil {
		return "", "", "", false
	}
	return w.undone.hash, w.undone.sources, w.undone.reload, true
}

// OfRecordedRestart reports whether the pods are of the template of a restart that wrote the record, so that none of them
// is older than the record, whatever templates there were meanwhile.
func (w *Workload) OfRecordedRestart() bool { return w.restart != 0 && w.restart == w.applied }

// says reports whether a record says nothing that another one does not. The record of a restart may
// have the same content as the one before, and is about other pods: it tells when it was made, and which
// pods are to be evicted.
func (r record) says(other record) bool {
	return r.hash == other.hash && r.sources == other.sources && (r.verified == other.verified || r.verified == "") &&
		(r.reload == other.reload || r.reload == "") && (other.recreating != "" || r.recreating == "")
}

// keepRecord keeps a record that another client has removed while the pods stayed the same:
// they still run with what it says.
func (w *Workload) keepRecord(previous *Workload) {
	before, now := previous.record(), w.record()
	if before.rekeyed && KeyOf(now.hash) != KeyOf(before.hash) {
		if before.rekeyed = now.hash != ""; before.rekeyed { // else another client has removed it
			before.recreating = now.recreating
		}
		w.dropped = &before
		return
	}
	if before.hash != "" && (now.hash == "" || now.hash == before.hash && now.sources == "" && before.sources != "") {
		w.dropped = &before
	}
}

// Record returns the annotations that remember with which content the pods were started:
// those of the workload, or those that it carried when another client removed them.
func (w *Workload) Record() (hash, sources string) {
	r := w.record()
	return r.hash, r.sources
}

func (w *Workload) record() record {
	if w.dropped != nil {
		return *w.dropped
	}
	m := &w.Marks
	return record{m.Hash, m.Sources, m.Verified, m.Recreating, m.LastReload, false}
}

// WithRecord returns the workload with its record expressed by the current key of the hash, which
// has replaced the key of the annotations.
func (w *Workload) WithRecord(hash, sources string) *Workload {
	next := *w
	r := w.record()
	r.hash, r.sources, r.rekeyed = hash, sources, !w.RecordDropped() // a dropped one is in no annotation
	next.dropped = &r
	if r.rekeyed && KeyOf(hash) == KeyOf(w.Marks.Hash) {
		next.dropped = nil // the key that was replaced is back, and the annotations say more than their translation
	}
	return &next
}

// LastReload describes the last restart: the value of Marks.LastReload, also if another client has removed it with
// the record. Empty: there was none.
func (w *Workload) LastReload() string {
	return cmp.Or(w.Marks.LastReload, w.record().reload)
}

// Recreating returns which pods have to be evicted: the value of Marks.Recreating, also if
// another client has removed it with the record. Empty: none.
func (w *Workload) Recreating() string {
	return cmp.Or(w.Marks.Recreating, w.record().recreating)
}

// RecordDropped reports whether another client has removed the record, or a part of it.
func (w *Workload) RecordDropped() bool { return w.dropped != nil && !w.dropped.rekeyed }

// RecordRekeyed reports whether the annotations express the record by a key of the hash that has
// been replaced.
func (w *Workload) RecordRekeyed() bool { return w.dropped != nil && w.dropped.rekeyed }
