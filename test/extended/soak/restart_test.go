// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"encoding/json"
	"time"
)

// lastReload is the server's annotation about a restart.
type lastReload struct {
	Trigger   string
	Automatic time.Time
	Streak    int
}

// longStreak is the number of restarts after which the minimum interval is most of a minute.
const longStreak = 5

func lastReloadOf(s *state) (last lastReload) {
	// A missing or invalid value counts as none.
	_ = json.Unmarshal([]byte(s.annotations[lastReloadAnnotation]), &last)
	return last
}

// restarted judges a restart by the server: a rollout or an eviction.
func (w *workload) restarted(before *state) {
	w.cell.oracle.tally.rollouts++
	hash, last, earlier := w.state.annotations[hashAnnotation], lastReloadOf(w.state), lastReloadOf(before)
	requested := w.requests > 0 && last.Trigger == "Request" && w.state.annotations[lastReloadAnnotation] != before.annotations[lastReloadAnnotation]
	if requested {
		w.requests--
		w.hash = ""
	} else {
		w.rollouts++
	}
	w.log("restarted by the server because of %s: %s", last.Trigger, hash)
	interval, _ := time.ParseDuration(before.annotations["configdep.io/min-interval"])
	// A patch may arrive after the namespace has opted out.
	evicted := w.state.annotations["configdep.io/strategy"] == "recreate" && (w.managed() || w.state.annotations[recreatingAnnotation] != "")
	switch {
	case hash == "" || !evicted && hash != w.state.template.Annotations[hashAnnotation]:
		w.violation("restarted with the hash %q, but the record has %q", w.state.template.Annotations[hashAnnotation], hash)
	case requested:
	// A patch is bound to the version of the workload, not to the version of the namespace.
	case !w.managed() && !w.leaving && (w.cell.oracle.undisturbed || w.state.annotations[reloadAnnotation] != ""):
		w.violation("restarted although it has not opted in")
	case before.paused:
		w.violation("restarted although it is paused")
	case before.pods == 0:
		w.violation("restarted although it has no replicas")
	case !earlier.Automatic.IsZero() && last.Automatic.Sub(earlier.Automatic) < interval:
		w.violation("restarted %v after the last time, the minimum interval is %v", last.Automatic.Sub(earlier.Automatic), interval)
	case hash == w.hash:
		w.violation("restarted twice for the same content")
	case w.rollouts > w.allowed() && w.cell.oracle.undisturbed || w.rollouts > w.allowed()+bare(before):
		w.violation("restarted %d times for %d changes of what it reads, and %d that were due before", w.rollouts, w.changes, w.owed)
	case evicted && hash != record(before):
		// A change while the patch of an eviction is on its way may be read by the new pods, and no template shows
		// that they are newer.
	case w.cell.oracle.undisturbed && w.since == 0:
		w.violation("restarted although nothing that it reads has changed since its template did")
	}
	w.hash, w.since, w.leaving = hash, 0, false
	if !evicted {
		w.began(nil)
	}
	w.noteRecord()
	if evicted { // pods that are created during the decision are not evicted
		w.decidedAt = before.version
	}
}

// allowed returns how many restarts have a reason. Without a record, and if a disturbance has hidden the order of
// events, changes of keys that it does not read count too.
func (w *workload) allowed() int {
	if (w.lost || w.adopting) && !w.cell.oracle.undisturbed {
		return w.owed + max(w.changes, w.cell.changes)
	}
	return w.owed + w.changes
}

// bare returns 1 if only the hash on the template is left of the record: it does not show what else counted when
// it was written, which of these sources have changed, or when.
// which of that has changed, or when.
func bare(s *state) int {
	if s.annotations[hashAnnotation] == "" && s.template.Annotations[hashAnnotation] != "" {
		return 1
	}
	return 0
}

// begin records that changes which belong together are about to be made in a cell, and together that they are
// complete, within a fraction of the settle time.
func (c *cell) begin() {
	for _, w := range c.workloads {
		w.before = w.changes
	}
}

func (c *cell) together() {
	for _, w := range c.workloads {
		w.changes = min(w.changes, w.before+1)
	}
}
