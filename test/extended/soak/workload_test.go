// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
)

// writeLimit is how often the server may write to a workload in an undisturbed phase, whatever owners do.
const writeLimit = 25

// workload is what is known about a workload, and about events since the last calm.
type workload struct {
	cell       *cell
	name, kind string
	state      *state // nil: it does not exist
	variant    int
	pods       map[string]*pod

	read   map[string]string // what a pod that starts reads, or would have read when it last could start
	starts bool              // whether a pod can start now
	known  map[string]bool   // what there was to read of sources until now
	recurs bool              // something of what changed last is as it was at some time before, so that the hash does not tell when

	// recorded is the revision of the first record that has been there since, for the current rules; 0: there is none.
	// Changes after it must restart the workload. Former is a record that no longer counts.
	recorded int64
	former   string
	// of is the variant for which the last record was written. Of another one, other keys may count.
	of int
	// leaving: its namespace has opted out since the last calm. A restart that was decided before may still come.
	leaving bool
	reloads map[string]bool // the server's annotations about restarts
	hash    string          // of the last restart; empty: what the pods may have read has changed since

	changes  int       // of the content that it reads: reasons for a restart
	before   int       // of these, those before the ones that belong together
	changed  time.Time // when it last changed
	restarts int
	evicted  int64 // the revision of the last restart, if that was by evictions
	writes   int   // of the server

	trace []string
	wrong bool // the oracle has found a violation
	late  bool // it was not calm at the last check
	// doubted is since when a view has shown that a restart in doubt is due; zero: none does.
	doubted time.Time
}

func (w *workload) rules() rules { return rulesOf(w.state.annotations, w.cell.reload) }

func (w *workload) log(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf("%s r%d: ", w.cell.at.Format("15:04:05.000"), w.cell.revision)+fmt.Sprintf(format, args...))
}

func (w *workload) violation(format string, args ...any) {
	w.wrong = true
	w.log("VIOLATION: "+format, args...)
	w.cell.oracle.violations = append(w.cell.oracle.violations, fmt.Sprintf("%s/%s: ", w.cell.namespace, w.name)+fmt.Sprintf(format, args...))
}

// look handles the current content.
func (w *workload) look() {
	read, starts := consume(w.variant, w.cell.sources)
	if starts != w.starts {
		w.log("pods start: %t", starts)
	}
	w.starts = starts
	if !starts {
		return
	}
	before := w.read
	w.read = read
	if slices.ContainsFunc(sourceNames, func(name string) bool { return w.rules().triggers(w.variant, name) && before[name] != read[name] }) {
		w.log("content %v", read)
		recurs := slices.ContainsFunc(sourceNames, func(name string) bool { return before[name] != read[name] && w.known[name+" "+read[name]] })
		w.recurs = recurs || w.recurs && w.cell.at.Sub(w.changed) < 10*time.Second // pods may be restarted for both changes
		w.reason()
		w.changed = w.cell.at
		w.cell.oracle.tally.changes++
	}
}

// know notes what a pod could read of the sources now, whether or not it could start.
func (w *workload) know() {
	for _, name := range sourceNames {
		if text, complete := readingOf(w.variant, name, w.cell.sources[name]); complete {
			w.known[name+" "+text] = true
		}
	}
}

// reason records that there is a reason for a restart.
func (w *workload) reason() { w.changes, w.hash = w.changes+1, "" }

// set handles the current state of the workload itself.
func (w *workload) set(now *state) {
	before := w.state
	w.state = now
	switch {
	case now == nil:
		w.log("deleted")
		w.recorded, w.hash, w.former = 0, "", ""
	case before == nil:
		w.log("created, %s, replicas %d", w.rules().mode, now.pods)
		if w.noteTemplate(); w.cell.at.Sub(w.changed) < 2*time.Second {
			w.reason()
		}
		w.noteRecord("")
	default:
		w.compare(before)
	}
	if now != nil {
		w.reloads[now.annotations[lastReloadAnnotation]] = true
		if text := written(now); before == nil || text != written(before) {
			w.log("  now %s", text)
		}
	}
}

// written returns the annotations that the server has written to a workload.
func written(s *state) string {
	return fmt.Sprintf("%s %s, evicting %t; in the template %s %s", s.annotations[hashAnnotation], s.annotations[appliedAnnotation],
		s.annotations[recreatingAnnotation] != "", s.template.Annotations[hashAnnotation], s.template.Annotations["configdep.io/reloaded-at"])
}

func (w *workload) compare(before *state) {
	now := w.state
	template := !equality.Semantic.DeepEqual(before.template, now.template)
	if before.annotations[writeAnnotation] != now.annotations[writeAnnotation] {
		w.ownerWrote(before, template)
		return
	}
	last := now.annotations[lastReloadAnnotation] // it may be written again after the owner has removed it
	restarted := template || last != "" && !w.reloads[last]
	if restarted || before.annotations[appliedAnnotation] != now.annotations[appliedAnnotation] {
		w.writes++
		switch {
		case before.deleting:
			w.violation("the server has written to the workload while it was being deleted")
		case w.cell.oracle.undisturbed && w.writes == writeLimit:
			w.violation("the server has written to the workload %d times", w.writes)
		}
	}
	if restarted {
		w.restarted(before)
		if w.evicted = 0; now.annotations[recreatingAnnotation] != "" {
			w.evicted = w.cell.revision
		}
	}
	w.noteRecord(before.annotations[appliedAnnotation])
}

// ownerWrote handles a write of the owner.
func (w *workload) ownerWrote(before *state, template bool) {
	now := w.state
	w.log("written by the owner: %v, replicas %d, paused %t", w.rules(), now.pods, now.paused)
	if before.annotations[recreatingAnnotation] != "" && now.annotations[recreatingAnnotation] == "" {
		w.log("the owner has ended the eviction, which the server may begin again")
		w.reason()
	}
	if template {
		was := w.variant
		w.noteTemplate()
		if w.cell.at.Sub(w.changed) < 2*time.Second || was != w.variant && !w.cell.oracle.undisturbed {
			w.reason() // times are in seconds: whether the new pods have read the change cannot be known
		}
	}
	w.ruled(rulesOf(before.annotations, w.cell.reload))
	w.noteRecord(before.annotations[appliedAnnotation])
}

// noteTemplate handles a template that the owner has written.
func (w *workload) noteTemplate() {
	w.variant = variantOf(w.state.template.Annotations)
	if read, starts := consume(w.variant, w.cell.sources); starts {
		w.read, w.starts = read, true
	} else {
		w.starts = false
	}
	w.hash = ""
	w.log("template written by the owner: %s", identityOf(w.state))
	w.cell.oracle.tally.templates++
}

// ruled handles other rules, with which the content is adopted again.
func (w *workload) ruled(before rules) {
	if before != w.rules() {
		w.recorded, w.former = 0, w.state.annotations[appliedAnnotation]
	}
}

// noteRecord handles the record.
func (w *workload) noteRecord(before string) {
	now := w.state.annotations[appliedAnnotation]
	if now != before {
		w.of = w.variant
	}
	switch {
	case now == before:
	case now == "":
		w.log("the record is removed")
		w.recorded = 0
	case w.recorded == 0 && now != w.former && w.rules().managed():
		w.log("the record is written")
		w.recorded = w.cell.revision
		w.cell.oracle.tally.records++
	}
}

// lastReload is the server's annotation about a restart.
type lastReload struct {
	Trigger   string
	Automatic time.Time
	Streak    int
}

func lastReloadOf(s *state) (last lastReload) {
	// A missing or invalid value counts as none.
	_ = json.Unmarshal([]byte(s.annotations[lastReloadAnnotation]), &last)
	return last
}

// restarted judges a restart by the server: a rollout or an eviction.
func (w *workload) restarted(before *state) {
	w.cell.oracle.tally.restarts++
	w.restarts++
	hash, last, earlier := w.state.annotations[hashAnnotation], lastReloadOf(w.state), lastReloadOf(before)
	w.log("restarted by the server because of %s: %s", last.Trigger, hash)
	interval, _ := time.ParseDuration(before.annotations["configdep.io/min-interval"])
	switch {
	// A patch is bound to the version of the workload, not to the version of the namespace.
	case !w.rules().managed() && !w.leaving && (w.cell.oracle.undisturbed || w.state.annotations[reloadAnnotation] != ""):
		w.violation("restarted although it has not opted in")
	case before.paused:
		w.violation("restarted although it is paused")
	case before.pods == 0:
		w.violation("restarted although it has no replicas")
	case !earlier.Automatic.IsZero() && last.Automatic.Sub(earlier.Automatic) < interval:
		w.violation("restarted %v after the last time, the minimum interval is %v", last.Automatic.Sub(earlier.Automatic), interval)
	case hash != "" && hash == w.hash && w.doubts() == 0:
		w.violation("restarted twice for the same content")
	case w.restarts > w.changes+w.doubts():
		w.violation("restarted %d times, for which there were %d reasons", w.restarts, w.changes)
	}
	w.hash, w.leaving = hash, false
}

// doubts returns how many restarts there may be besides those with a reason: a server that has just begun to read does not know what of a source was written
// shortly before a pod started, and a pod that started while servers were disturbed may be in doubt.
func (w *workload) doubts() int {
	if !w.cell.oracle.undisturbed && w.isStormy() {
		return 1
	}
	return 0
}

// settled returns an error while pods are being replaced.
func (w *workload) settled() error {
	if w.state == nil {
		return errors.New("the workload does not exist")
	}
	want := identityOf(w.state)
	for name, p := range w.pods {
		if !p.runs() || p.identity != want {
			return fmt.Errorf("pod %s is %s, of the current template = %t", name, p.phase, p.identity == want)
		}
	}
	if !w.state.complete || len(w.pods) != int(w.state.pods) {
		return fmt.Errorf("the status shows a rollout, %d of %d pods run", len(w.pods), w.state.pods)
	}
	return nil
}
