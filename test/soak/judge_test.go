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
		return errors.New("it does not exist")
	}
	want := identityOf(w.state)
	for name, p := range w.pods {
		if !p.ready || p.identity != want {
			return fmt.Errorf("pod %s is %s, of the present template: %t", name, p.phase, p.identity == want)
		}
	}
	if !w.state.complete || len(w.pods) != int(w.state.pods) {
		return fmt.Errorf("its status tells of a rollout, and %d of %d pods run", len(w.pods), w.state.pods)
	}
	return nil
}

// seenByAny reports whether any server has seen all templates that came since the pods were of one. If it does not lead, it
// looks at the pods itself.
func (w *workload) seenByAny() bool {
	return slices.ContainsFunc(w.cell.oracle.servers, func(s *process) bool { return s.sawAll(w.wholeAt, w.startedAt) })
}

// calm judges what has come of a phase, and begins the next.
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
				w.log("pod %s runs with %v, which cannot be known: its template came back before the leader watched", name, p.read)
			default:
				w.violation("pod %s, of r%d, was started with %v, and the present content is %v", name, p.born, p.read, w.read)
			}
			p.read = maps.Clone(w.read) // told once
		}
		// Whether the pods have read what was not recorded may be told by times alone. What came after
		// their template is not taken to be read.
		later := func(name string) bool { return w.cell.changed(w.variant, name, w.startedAt, w.cell.revision) }
		doubt := w.differ(w.remembered, w.read) && (!o.undisturbed || w.owed > 0 || slices.ContainsFunc(w.rules().counted(w.variant), later))
		// A leader that began to watch later does not know that the pods have been waiting.
		waited := !w.starts && !o.servers[leader].saw(w.startedAt) && slices.ContainsFunc(w.rules().counted(w.variant), later)
		held := w.managed() && !w.starts || !w.managed() && record(w.state) != ""
		if w.owed = 0; held && (stale || doubt || waited || w.mixed) {
			w.owed = 1
		}
		if w.managed() && w.starts {
			w.checkHash()
		}
		if !o.undisturbed && w.managed() && record(w.state) == "" {
			w.adopting = true // what came first is not known any more
		}
		w.changes, w.rollouts, w.since, w.writes, w.lost, w.leaving = 0, 0, w.owed, 0, false, false
		w.log("calm")
	})
	o.calmAt = o.revision
	o.closeGaps()
}
