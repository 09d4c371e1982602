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

// workload is what is known of one, and of what has happened since the last calm.
type workload struct {
	cell       *cell
	name, kind string
	state      *state // nil: it is not there
	variant    int
	pods       map[string]*pod

	read   reading // what pods that start read, when they last could
	starts bool    // whether they can now

	// adopting: it has opted in while something disturbed the server and remembers nothing
	// yet, so that what is there when it is recorded counts as what its pods were started with.
	adopting bool
	// leaving: its namespace has opted out, since the last calm. A restart that was decided on before
	// may still come.
	leaving bool
	lost    bool             // the owner has removed what it remembered, since the last calm
	counts  map[string]int64 // the revision from which on a source counts
	// kept has the units of the record that the owner has removed, and removedAt is when.
	kept      map[string]string
	removedAt int64
	// recordedAt is the revision at which it was last recorded with what pods were started, and decidedAt
	// one after which that was decided.
	recordedAt, decidedAt int64
	mixed                 bool // it is recorded that pods differ
	createdAt             int64
	// startedAt is the revision since which pods of the template are made. If reused, it is one
	// of before, and if unsure, its rollout began before the last one was complete.
	startedAt      int64
	reused, unsure bool
	// numberBefore is what the controller of a Deployment had counted when the template came.
	numberBefore int
	// completeAt is the revision at which the rollout of a template was last complete, or the workload was
	// created, and wholeAt is what that was when the present template came.
	completeAt, wholeAt int64
	templates           map[string]bool // the identities of all that there have been

	// recorded has the units of the sources that counted when the record was written that is
	// there, and remembered the content.
	recorded   map[string]string
	remembered reading
	hash       string          // of the last rollout, until the owner changes the template
	reloads    map[string]bool // what the server has written of restarts
	pausedWith string          // the identity of the template with which it was paused

	owed     int // restarts that were due at the last calm and could not be made
	changes  int // of the content that it reads
	before   int // of these, how many there were before those that belong together
	rollouts int
	requests int // for a restart that have not been carried out
	writes   int // of the server
	since    int // changes since the template changed, including what is owed
	down     *absence
	vanished bool // a key or a source that it reads, since no replica has been watching
	changed  time.Time
	trace    []string
	wrong    bool // the oracle has found something
	late     bool // it was not calm when it was last looked at
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

// look takes notice of the present content.
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
		// Of what only a glob names it is not known when something went.
		w.vanished = w.vanished || slices.ContainsFunc(w.rules().counted(w.variant), func(name string) bool {
			return before[name] != read[name] && w.rules().onlyGlob(w.variant, name)
		})
	}
	w.cell.oracle.tally.changes++
}

// set takes notice of the present state of the workload itself.
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

// written returns what the server, or the webhook, has written to a workload.
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
			w.log("the server has verified what is recorded")
			w.recordedAt, w.decidedAt = w.cell.revision, w.cell.revision
		}
	case record(now) == "":
		w.log("the server has dropped the record")
		w.recorded = nil
	default:
		w.baseline(before)
	}
}

// ownerWrote takes notice of a write of the owner, to which the webhook may have added.
func (w *workload) ownerWrote(before *state, template bool) {
	now := w.state
	w.log("the owner has written it: %v, replicas %d, paused %t", w.rules(), now.pods, now.paused)
	evicted, doubt := now.annotations["configdep.io/strategy"] == "recreate", false
	if o := w.cell.oracle; o.comparable(before) && !o.comparable(now) {
		w.log("the owner has removed the record")
		w.lost, w.kept, w.recorded, w.removedAt = true, w.recorded, nil, w.cell.revision
		// The template does not tell with what pods run that have been evicted.
		doubt = evicted && !w.cell.oracle.undisturbed
	}
	if before.annotations[recreatingAnnotation] != "" && now.annotations[recreatingAnnotation] == "" {
		// The server was told to no longer evict the pods, and has to begin again.
		w.log("the owner has removed that pods are being evicted")
		doubt = true
	}
	was := w.variant
	if template {
		w.noteTemplate()
		// A leader that reads both in a list does not know which came first, if no record tells.
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
	case before.paused && w.stale(): // edited, and edited back
		w.changes, w.since = max(w.changes, 1), max(w.since, 1)
	}
	if applied := now.annotations[appliedAnnotation]; applied != "" && applied != before.annotations[appliedAnnotation] {
		if w.noteRecord(); strings.Contains(record(now), ".mixed") && w.reused && w.unsure {
			w.differing() // the pods that it is about may run on
		}
	}
}

// serverWrote judges that the server has written at all.
func (w *workload) serverWrote(before *state) {
	w.writes++
	switch {
	case before.deleting:
		w.violation("the server has written to it while it was being deleted")
	case w.cell.oracle.undisturbed && w.writes == writeLimit:
		w.violation("the server has written to it %d times", w.writes)
	}
}

// noteTemplate takes notice of a template that the owner has written.
func (w *workload) noteTemplate() {
	w.variant = variantOf(w.state.template.Annotations)
	if read, starts := consume(w.variant, w.cell.sources); starts {
		w.read, w.starts = read, true
	} else {
		w.starts = false
	}
	w.log("the owner has written the template: %s", identityOf(w.state))
	w.cell.oracle.tally.templates++
}

// readAnew reports whether a source that counts has changed since the last calm, of which the record
// does not know what the template reads of it.
func (w *workload) readAnew() bool {
	o := w.cell.oracle
	return slices.ContainsFunc(w.rules().counted(w.variant), func(name string) bool {
		return !w.knows(name) && w.cell.changed(w.variant, name, o.calmAt, w.cell.revision)
	})
}

// podsStart takes notice that a template makes pods, which read what is there then. Those of the
// same template that have not been replaced yet run on.
func (w *workload) podsStart(before *state) {
	w.hash, w.since = "", 0
	if w.began(before); w.mixed && w.reused && w.unsure {
		w.since++ // those of which it is recorded that they differ may run on
	}
	if w.down != nil {
		// Times are told by the second. Of a template that has come back, older pods may run on.
		w.down.absorbed = !w.vanished && w.cell.at.Sub(w.changed) > 2*time.Second && (!w.reused || !w.unsure)
	}
}

// stale reports whether a pod has read something else than what is there.
func (w *workload) stale() bool {
	for _, p := range w.pods {
		if !p.waiting && w.differ(p.read, w.read) {
			return true
		}
	}
	return false
}

// began takes notice that pods are made of the template that is there.
func (w *workload) began(before *state) {
	w.startedAt, w.wholeAt, w.kept = w.cell.revision, w.completeAt, nil
	w.reused = w.templates[identityOf(w.state)]
	w.unsure = before != nil && (!before.complete || !w.cell.oracle.undisturbed)
	w.numberBefore = numberOf(cmp.Or(before, w.state))
}

// numberOf returns what the controller of a Deployment has counted; 0: nothing, or it is not said.
func numberOf(s *state) int {
	n, _ := strconv.Atoi(s.annotations["deployment.kubernetes.io/revision"])
	return n
}

// counted reports whether the controller of a Deployment has counted the template as a new one. It gives the
// same number twice where it has not read yet what it wrote.
func (w *workload) counted() bool { return w.numberBefore > 0 && numberOf(w.state) > w.numberBefore }
