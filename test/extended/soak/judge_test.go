// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// want returns the state that servers should show.
func (w *workload) want() string {
	switch {
	case !w.managed():
		return "Unmanaged"
	case !w.starts:
		return "Blocked"
	default:
		return "InSync"
	}
}

// settled returns an error while pods are being replaced.
func (w *workload) settled() error {
	if w.state == nil {
		return errors.New("the workload does not exist")
	}
	want := identityOf(w.state)
	for name, p := range w.pods {
		if !p.ready || p.identity != want {
			return fmt.Errorf("pod %s is %s, of the current template = %t", name, p.phase, p.identity == want)
		}
	}
	if !w.state.complete || len(w.pods) != int(w.state.pods) {
		return fmt.Errorf("the status shows a rollout, %d of %d pods run", len(w.pods), w.state.pods)
	}
	return nil
}

// seenByAny reports whether any server has seen all templates since the ones of the pods. If it does not lead, it
// verifies the pods itself.
func (w *workload) seenByAny() bool {
	return slices.ContainsFunc(w.cell.oracle.servers, func(s *process) bool { return s.sawAll(w.wholeAt, w.startedAt) })
}

// calm judges the result of a phase, and begins the next one.
func (o *oracle) calm(leader int) {
	for _, c := range o.cells {
		c.changes = 0
	}
	o.each(func(w *workload) {
		if w.requests > 0 {
			w.violation("%d requests for a restart were not carried out", w.requests)
		}
		w.requests = 0
		stale := false
		for name, p := range w.pods {
			if p.waiting || !w.differ(p.read, w.read) {
				continue
			}
			stale = true
			switch {
			case !w.managed() || !w.starts:
				continue
			case p.at < w.startedAt && !o.servers[leader].saw(w.startedAt) && !w.seenByAny():
				o.tally.unknowable++
				w.log("pod %s runs with %v, which cannot be known: its template was restored before the leader watched", name, p.read)
			default:
				w.violation("pod %s, of r%d, was started with %v, and the current content is %v", name, p.born, p.read, w.read)
			}
			p.read = maps.Clone(w.read) // reported once
		}
		// Only times may show whether the pods have read content that was not recorded. Changes after their
		// template count as not read.
		later := func(name string) bool { return w.cell.changed(w.variant, name, w.startedAt, w.cell.revision) }
		doubt := w.differ(w.remembered, w.read) && (!o.undisturbed || w.owed > 0 || slices.ContainsFunc(w.rules().counted(w.variant), later))
		// A leader that began to watch later does not know that the pods were waiting.
		waited := !w.starts && !o.servers[leader].saw(w.startedAt) && slices.ContainsFunc(w.rules().counted(w.variant), later)
		held := w.managed() && !w.starts || !w.managed() && record(w.state) != ""
		if w.owed = 0; held && (stale || doubt || waited || w.mixed) {
			w.owed = 1
		}
		if w.managed() && w.starts {
			w.checkHash()
		}
		if !o.undisturbed && w.managed() && record(w.state) == "" {
			w.adopting = true // the order of events is no longer known
		}
		w.changes, w.rollouts, w.since, w.writes, w.lost, w.leaving = 0, 0, w.owed, 0, false, false
		w.log("calm")
	})
	o.calmAt = o.revision
	o.closeGaps()
}
