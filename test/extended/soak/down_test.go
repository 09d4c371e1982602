// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package soak

// absence is the state when the last server was killed.
type absence struct {
	read     reading
	changes  int
	absorbed bool
}

// downBegins records that no server runs any longer.
func (o *oracle) downBegins() {
	o.each(func(w *workload) {
		w.down, w.vanished = &absence{read: w.read, changes: w.changes}, false
		w.log("no server is running")
	})
}

// downEnds records that servers are about to run again: of all events since, they see the result.
func (o *oracle) downEnds() {
	o.each(func(w *workload) {
		seen := 0
		if w.state != nil && w.differ(w.read, w.down.read) && !w.down.absorbed {
			seen = 1
		}
		w.changes = min(w.changes, w.down.changes+seen)
		w.down = nil
		w.log("servers are running again")
	})
}
