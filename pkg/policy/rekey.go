// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"maps"
	"strings"

	"github.com/configdep/configdep/pkg/dependency"
)

// Vouched is what the record of a workload said about its content before the key of the hash was
// replaced. It is needed because digests made with different keys cannot be compared: later,
// nothing else shows whether a record made with the previous key matches the current content.
type Vouched struct {
	workload *dependency.Workload
	record   Record
	// same are the tracked sources whose content was as recorded, and whole reports whether all of it was.
	same  map[string]bool
	whole bool
	// keys are the recorded keys of tracked sources whose recorded keys all still existed.
	keys map[string][]string
}

// Vouch returns what the record of a workload says about the content of a graph, or nil
// if it cannot be compared.
func (v Evaluator) Vouch(w *dependency.Workload) *Vouched {
	e := v.Evaluate(w)
	if !e.Comparable() || e.Record.abandoned() { // the latter is the same with any key
		return nil
	}
	vouched := &Vouched{workload: w, record: e.Record, same: map[string]bool{}, whole: e.Record.Hash == e.Hash, keys: map[string][]string{}}
	for i := range e.tracked {
		u := &e.tracked[i]
		vouched.same[u.id] = u.isCurrent(e.Record.Sources[u.id]) && !u.keepsOther()
		if names, known := u.keysThen(e.Record.Sources[u.id]); known {
			vouched.keys[u.id] = names
		}
	}
	return vouched
}

// Translate returns a workload with its record translated to another key of the hash, with which
// the graph was read again after a place in the order of reading. A tracked source that was as
// recorded, and has not changed since, gets the entry of its current content; any other keeps the
// digest of the previous key, which differs from all.
func (v *Vouched) Translate(now Evaluator, w *dependency.Workload, order uint64) *dependency.Workload {
	e := now.Evaluate(w)
	if w.UID != v.workload.UID || e.Record.Hash != v.record.Hash || dependency.KeyOf(e.Record.Hash) == dependency.KeyOf(e.Hash) {
		return w // the record was written again, or its key is back
	}
	e.Record = v.record // the list of sources may have been removed since
	whole := v.whole
	sources := maps.Clone(v.record.Sources)
	for i := range e.tracked {
		u := &e.tracked[i]
		same := v.same[u.id] && e.knows(u)
		if u.readAgainAfter(e, order) {
			same, whole = false, false
		}
		if same {
			sources[u.id] = u.ownEntry()
		} else if names, known := v.keys[u.id]; known && sources != nil { // which keys there were is said by the new key too
			entry := sources[u.id]
			sources[u.id] = entry[:strings.LastIndexByte(entry, '.')+1] + namesOf(e.digest, names)
		}
		whole = whole && (sources == nil || same)
	}
	hash := dependency.KeyOf(e.Hash) + mixed
	if whole && len(sources) <= len(e.tracked) {
		hash = e.Hash
	}
	if sources == nil {
		return w.WithRecord(hash, "")
	}
	return w.WithRecord(hash, mustJSON(sources))
}

// readAgainAfter reports whether any part of a tracked source was, or may have been, read with other
// content after a place in the order of reading.
func (u *trackedSource) readAgainAfter(e *Evaluation, order uint64) bool {
	if u.counted != nil {
		return e.lookUp(u.counted).written.Order > order
	}
	c := e.change(u)
	return c.order > order
}
