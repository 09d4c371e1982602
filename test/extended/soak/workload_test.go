// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
)

// workload is what is known about a workload, and about events since the last calm.
type workload struct {
	cell       *cell
	name, kind string
	state      *state // nil: it does not exist
	variant    int
	pods       map[string]*pod

	read   reading // what a pod that starts reads, or would have read when it last could start
	starts bool    // whether a pod can start now

	// adopting: it has opted in during a disturbance and has no record yet, so that the current content at the
	// time of the record counts as the content with which its pods were started.
	adopting bool
	// leaving: its namespace has opted out since the last calm. A restart that was decided before may still come.
	leaving bool
	lost    bool             // the owner has removed the record since the last calm
	counts  map[string]int64 // the revision from which on a source counts
	// kept contains the units of the record that the owner has removed, and removedAt the revision of that.
	kept      map[string]string
	removedAt int64
	// recordedAt is the revision of the last record of the content of the pods, and decidedAt a revision after
	// which that was decided.
	recordedAt, decidedAt int64
	mixed                 bool // it is recorded that pods differ
	createdAt             int64
	// startedAt is the revision since which pods of the template are created. If reused, the template is an
	// earlier one, and if unsure, its rollout began before the previous one was complete.
	startedAt      int64
	reused, unsure bool
	// numberBefore is the revision number of the Deployment when the template changed.
	numberBefore int
	// completeAt is the revision at which the rollout of a template was last complete, or the workload was
	// created, and wholeAt the value of that when the current template was set.
	completeAt, wholeAt int64
	templates           map[string]bool // the identities of all templates so far

	// recorded contains the units of the sources that counted when the current record was written, and remembered
	// their content.
	recorded   map[string]string
	remembered reading
	hash       string          // of the last rollout, until the owner changes the template
	reloads    map[string]bool // the annotations of the server about restarts
	pausedWith string          // the identity of the template when it was paused

	owed     int // restarts that were due at the last calm and could not be made
	changes  int // of the content that it reads
	before   int // of these, the number before the ones that belong together
	rollouts int
	requests int // for restarts that have not been made
	writes   int // of the server
	since    int // changes since the template changed, including what is owed
	down     *absence
	vanished bool // a key or a source that it reads, since no replica watches
	changed  time.Time
	trace    []string
	wrong    bool // the oracle has found a violation
	late     bool // it was not calm at the last check
}

func (w *workload) rules() rules { return rulesOf(w.state.annotations, w.cell.reload) }

func (w *workload) managed() bool { return w.rules().managed() }

// differ reports whether two readings differ in what counts.
func (w *workload) differ(a, b reading) bool {
	return slices.ContainsFunc(w.rules().counted(w.variant), func(name string) bool { return a[name] != b[name] })
}

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
	if !w.differ(before, read) {
		return
	}
	w.log("content %v", read)
	w.changed = w.cell.at
	w.changes++
	w.since++
	if w.down != nil {
		w.down.absorbed = false
		// If only a glob matches a source, the time of its deletion is not known.
		w.vanished = w.vanished || slices.ContainsFunc(w.rules().counted(w.variant), func(name string) bool {
			return before[name] != read[name] && w.rules().onlyGlob(w.variant, name)
		})
	}
	w.cell.oracle.tally.changes++
}

// set handles the current state of the workload itself.
func (w *workload) set(now *state) {
	before := w.state
	w.state = now
	switch {
	case now == nil:
		w.log("deleted")
		w.hash, w.adopting, w.mixed, w.kept = "", false, false, nil
		clear(w.templates)
	case before == nil:
		w.log("created, %s, replicas %d", w.rules().mode, now.pods)
		for _, name := range sourceNames {
			w.counts[name] = w.cell.revision
		}
		w.recorded, w.createdAt, w.completeAt = nil, w.cell.revision, w.cell.revision
		w.recordedAt, w.decidedAt = w.cell.revision, w.cell.revision
		w.noteTemplate()
		w.podsStart(nil)
		if record(now) != "" {
			w.noteRecord()
		}
	default:
		w.compare(before)
	}
	if now != nil && now.complete {
		w.completeAt = w.cell.revision
	}
	if now != nil {
		w.templates[identityOf(now)] = true
		w.reloads[now.annotations[lastReloadAnnotation]] = true
		if text := written(now); before == nil || text != written(before) {
			w.log("  now %s", text)
		}
	}
}

// written returns the annotations that the server, or the webhook, has written to a workload.
func written(s *state) string {
	hash := s.template.Annotations[hashAnnotation]
	return fmt.Sprintf("%s %s, verified %q, evicting %t; in the template %s %s", s.annotations[hashAnnotation], s.annotations[appliedAnnotation],
		s.annotations[verifiedAnnotation], s.annotations[recreatingAnnotation] != "", hash, s.template.Annotations["configdep.io/reloaded-at"])
}

func (w *workload) compare(before *state) {
	now := w.state
	template := !equality.Semantic.DeepEqual(before.template, now.template)
	if before.annotations[writeAnnotation] != now.annotations[writeAnnotation] {
		w.ownerWrote(before, template)
		return
	}
	last := now.annotations[lastReloadAnnotation] // it may be written again after the owner has removed it
	restarted := last != "" && !w.reloads[last]
	if template || restarted || before.annotations[appliedAnnotation] != now.annotations[appliedAnnotation] {
		w.serverWrote(before)
	}
	switch {
	case template, restarted:
		w.restarted(before)
	case before.annotations[appliedAnnotation] == now.annotations[appliedAnnotation]:
		if before.annotations[verifiedAnnotation] != now.annotations[verifiedAnnotation] {
			w.log("the server has verified the record")
			w.recordedAt, w.decidedAt = w.cell.revision, w.cell.revision
		}
	case record(now) == "":
		w.log("the server has removed the record")
		w.recorded = nil
	default:
		w.baseline(before)
	}
}

// ownerWrote handles a write of the owner, to which the webhook may have added annotations.
func (w *workload) ownerWrote(before *state, template bool) {
	now := w.state
	w.log("written by the owner: %v, replicas %d, paused %t", w.rules(), now.pods, now.paused)
	evicted, doubt := now.annotations["configdep.io/strategy"] == "recreate", false
	if o := w.cell.oracle; o.comparable(before) && !o.comparable(now) {
		w.log("the owner has removed the record")
		w.lost, w.kept, w.recorded, w.removedAt = true, w.recorded, nil, w.cell.revision
		// The template does not show the content of pods that were evicted.
		doubt = evicted && !w.cell.oracle.undisturbed
	}
	if before.annotations[recreatingAnnotation] != "" && now.annotations[recreatingAnnotation] == "" {
		// The owner has cancelled the eviction, and the server must begin it again.
		w.log("the owner has removed the eviction")
		doubt = true
	}
	was := w.variant
	if template {
		w.noteTemplate()
		// A leader that reads both in a list does not know the order, if no record shows it.
		doubt = doubt || w.variant != was && !w.cell.oracle.undisturbed && w.readAnew()
	}
	if doubt {
		w.hash, w.changes, w.since = "", w.changes+1, w.since+1
	}
	w.ruled(rulesOf(before.annotations, w.cell.reload))
	switch {
	case now.paused && !before.paused:
		w.pausedWith = identityOf(before)
	case now.paused:
	case before.paused && identityOf(now) != w.pausedWith, !before.paused && template:
		w.podsStart(before)
	case before.paused && w.stale(): // changed, and changed back
		w.changes, w.since = max(w.changes, 1), max(w.since, 1)
	}
	if applied := now.annotations[appliedAnnotation]; applied != "" && applied != before.annotations[appliedAnnotation] {
		if w.noteRecord(); strings.Contains(record(now), ".mixed") && w.reused && w.unsure {
			w.differing() // the pods that the record is about may still run
		}
	}
}

// serverWrote judges whether the server may write.
func (w *workload) serverWrote(before *state) {
	w.writes++
	switch {
	case before.deleting:
		w.violation("the server has written to the workload while it was being deleted")
	case w.cell.oracle.undisturbed && w.writes == writeLimit:
		w.violation("the server has written to the workload %d times", w.writes)
	}
}

// noteTemplate handles a template that the owner has written.
func (w *workload) noteTemplate() {
	w.variant = variantOf(w.state.template.Annotations)
	if read, starts := consume(w.variant, w.cell.sources); starts {
		w.read, w.starts = read, true
	} else {
		w.starts = false
	}
	w.log("template written by the owner: %s", identityOf(w.state))
	w.cell.oracle.tally.templates++
}

// readAnew reports whether a source that counts has changed since the last calm, and the record does not know what
// the template reads of it.
func (w *workload) readAnew() bool {
	o := w.cell.oracle
	return slices.ContainsFunc(w.rules().counted(w.variant), func(name string) bool {
		return !w.knows(name) && w.cell.changed(w.variant, name, o.calmAt, w.cell.revision)
	})
}

// podsStart handles a template that creates pods, which read the current content. Pods of the same template that
// have not been replaced yet keep running.
func (w *workload) podsStart(before *state) {
	w.hash, w.since = "", 0
	if w.began(before); w.mixed && w.reused && w.unsure {
		w.since++ // the pods that are recorded to differ may still run
	}
	if w.down != nil {
		// Times are in seconds. If a template was restored, older pods of it may still run.
		w.down.absorbed = !w.vanished && w.cell.at.Sub(w.changed) > 2*time.Second && (!w.reused || !w.unsure)
	}
}

// stale reports whether a pod has read other content than the current.
func (w *workload) stale() bool {
	for _, p := range w.pods {
		if !p.waiting && w.differ(p.read, w.read) {
			return true
		}
	}
	return false
}

// began records that pods of the current template are created.
func (w *workload) began(before *state) {
	w.startedAt, w.wholeAt, w.kept = w.cell.revision, w.completeAt, nil
	w.reused = w.templates[identityOf(w.state)]
	w.unsure = before != nil && (!before.complete || !w.cell.oracle.undisturbed)
	w.numberBefore = numberOf(cmp.Or(before, w.state))
}

// numberOf returns the revision number of a Deployment; 0: unknown.
func numberOf(s *state) int {
	n, _ := strconv.Atoi(s.annotations["deployment.kubernetes.io/revision"])
	return n
}

// counted reports whether the Deployment controller has given the template a new number. It gives the same number
// twice if it has not yet read its own write.
func (w *workload) counted() bool { return w.numberBefore > 0 && numberOf(w.state) > w.numberBefore }
