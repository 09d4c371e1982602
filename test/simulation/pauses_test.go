// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"math/rand/v2"
	"slices"
	"time"
)

// Deployments that are paused when they are restarted, as Reloader does.

const (
	pausePeriodAnnotation = "deployment.reloader.stakater.com/pause-period"
	pausedAtAnnotation    = "deployment.reloader.stakater.com/paused-at"
)

// keepPause keeps the annotations that tell whose pause it is, if the admission policy does. Else nothing tells it.
func (w *world) keepPause(d *workload, before *manifest) {
	at := before.annotations[pausedAtAnnotation]
	switch {
	case at == "" || !d.paused || d.annotations[pausedAtAnnotation] != "":
	case w.seeds[d.slot].Keeps:
		d.annotations = with(with(d.annotations, pausedAtAnnotation, at), lastReloadAnnotation, before.annotations[lastReloadAnnotation])
	default:
		d.pausedByServer = false
	}
}

// checkPauses checks at rest that no pause goes on that a server has begun.
func (o *oracle) checkPauses(d *workload, got *shown) {
	switch {
	case !d.pausedByServer || d.deleting || d.holder.fights():
	case d.paused:
		o.fail("%s is still paused since a restart: %s (%s: %s)", workloadName(d.slot), got.State, got.Reason, got.Message)
	case d.annotations[pausedAtAnnotation] != "":
		o.fail("%s is not paused any longer, and has the annotation %s", workloadName(d.slot), pausedAtAnnotation)
	}
}

// addPauses lets restarts pause Deployments in a twelfth of the histories, which owners write and other leaders resume.
func (h *history) addPauses(begin int) {
	m := maker{rand.New(rand.NewPCG(h.Seed, 14)), h}
	slot := m.workload()
	s := &h.Workloads[slot]
	if strategy := s.Annotations[strategyAnnotation]; m.IntN(12) > 0 || s.Kind != "Deployment" || strategy != "" && strategy != "env-var" || len(h.Workloads) > 1 && h.Workloads[1].Borrows {
		return
	}
	s.Keeps = m.IntN(2) == 0
	s.Annotations[pausePeriodAnnotation], s.Annotations[reloadAnnotation] = pick(m, "30s", "30s", "5m"), "auto"
	begin = min(begin, len(h.Operations))
	change := func() operation { return operation{Do: "set content", A: m.source(), Content: m.content()} }
	for range 2 + m.IntN(3) {
		at := begin + m.IntN(len(h.Operations)-begin+1)
		some := []operation{{Do: "calm"}, change(), change(), {Do: "wait", Wait: pick(m, 2*time.Second, 3*time.Second, 20*time.Second)}}
		for range m.IntN(4) {
			some = append(some, pick(m, change(), operation{Do: "rewrite", A: slot, B: 1 + m.IntN(3), C: -1}, operation{Do: "hand over", A: m.server(), B: m.IntN(2)},
				operation{Do: "kill", A: m.server()}, operation{Do: "birth", A: m.server()}, operation{Do: "toggle", A: slot, Annotation: pausePeriodAnnotation, Text: pick(m, "", "30s")},
				operation{Do: "opt", A: slot, Annotation: reloadAnnotation, Text: pick(m, "auto", "off")}, operation{Do: pick(m, "resume", "pause"), A: slot},
				operation{Do: "fault", A: slot, B: 1 + m.IntN(int(faultCount)-1), C: 1 + m.IntN(3)}, operation{Do: "set image", A: slot, B: m.IntN(2), C: m.IntN(3)},
				operation{Do: "wait", Wait: pick(m, time.Second, 10*time.Second, 31*time.Second)}, operation{Do: "look"}, operation{Do: "undo", A: slot}))
		}
		h.Operations = slices.Insert(h.Operations, at, some...)
	}
}
