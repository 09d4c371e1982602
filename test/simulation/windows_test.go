// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"math/rand/v2"
	"slices"
	"time"
)

// Times at which restarts may begin, and users who hold workloads.

const (
	windowsAnnotation = "configdep.io/windows"
	holdAnnotation    = "configdep.io/hold"
	// aMinuteInFive is a window that opens every five minutes, for one.
	aMinuteInFive = `[{kind: Allow, schedule: "*/5 * * * *", duration: 1m}]`
	windowPeriod  = 5 * time.Minute
)

// checkWindows checks that a restart that a server begins may begin then, by its clock.
func (o *oracle) checkWindows(r *request, rules *rules, name string) {
	now := time.Now().Add(r.server.world.skews.Servers[r.server.id])
	closes := now.Sub(now.Truncate(windowPeriod)) - time.Minute
	switch {
	case r.late: // it was sent at another time
	case rules.hold:
		o.fail("%s is restarted, although a user holds it", name)
	case rules.windows && closes > time.Second:
		o.fail("%s is restarted %v after its window has closed", name, closes)
	case rules.windows:
		o.tally["restarts in a window"]++
	}
}

// addWindows gives workloads of a twelfth of the histories windows, or a hold.
func (h *history) addWindows(begin int) {
	m := maker{rand.New(rand.NewPCG(h.Seed, 15)), h}
	if m.IntN(12) > 0 {
		return
	}
	slot := m.workload()
	h.Workloads[slot].Annotations = with(h.Workloads[slot].Annotations, windowsAnnotation, aMinuteInFive)
	begin = min(begin, len(h.Operations))
	for range 1 + m.IntN(4) {
		at := begin + m.IntN(len(h.Operations)-begin+1)
		do := operation{Do: pick(m, "toggle", "toggle", "toggle namespace"), A: slot}
		do.Annotation = pick(m, windowsAnnotation, windowsAnnotation, holdAnnotation)
		if do.Text = ""; m.IntN(2) == 0 {
			do.Text = pick(m, map[string][]string{windowsAnnotation: {aMinuteInFive, aMinuteInFive, "nightly"}, holdAnnotation: {"INC-4711"}}[do.Annotation]...)
		}
		h.Operations = slices.Insert(h.Operations, at, operation{Do: "set content", A: m.source(), Content: m.content()},
			operation{Do: "wait", Wait: pick(m, time.Second, 10*time.Second, time.Minute, windowPeriod)}, do)
	}
}
