// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package soak

// absence is how it was when the last server was killed.
type absence struct {
	read     reading
	changes  int
	absorbed bool
}

// downBegins is told that no server runs any more.
func (o *oracle) downBegins() {
	o.each(func(w *workload) {
		w.down, w.vanished = &absence{read: w.read, changes: w.changes}, false
		w.log("no server runs")
	})
}

// downEnds is told that servers are about to run again: of all that has happened since,
// they see the sum.
func (o *oracle) downEnds() {
	o.each(func(w *workload) {
		seen := 0
		if w.state != nil && w.differ(w.read, w.down.read) && !w.down.absorbed {
			seen = 1
		}
		w.changes = min(w.changes, w.down.changes+seen)
		w.down = nil
		w.log("servers run again")
	})
}
