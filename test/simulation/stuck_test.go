// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/configdep/configdep/pkg/decide"
)

// Pods that break, for which the controllers of StatefulSets and DaemonSets wait for ever, and what the oracle requires of the messages that say so.

// breakPod keeps a pod from being ready until it is replaced.
func (w *world) breakPod(d *workload, n int) bool {
	if !d.awaitsPods() || len(d.pods) == 0 {
		return false
	}
	p := d.pods[n%len(d.pods)]
	if p.terminating || !p.ready() {
		return false
	}
	p.broken = w.nodeTime(p.node())
	w.logf("    %s: pod %d is broken", workloadName(d.slot), p.uid)
	w.tellPod(d, p, false)
	w.rollSoon(d)
	return true
}

// awaitsPods reports whether the controller waits for pods without a deadline.
func (d *workload) awaitsPods() bool { return d.kind == "StatefulSet" || d.kind == "DaemonSet" }

// waitsForAPod reports whether the rollout will not go on before a pod is ready or gone.
func (d *workload) waitsForAPod() bool {
	if !d.awaitsPods() || d.deleting || d.onDelete || d.tainted || d.newest() == nil || d.kind == "StatefulSet" && d.partition >= d.replicas {
		return false
	}
	old := func(p *pod) bool { return p.ordinal >= d.partition && p.identity != d.newest().identity }
	return slices.ContainsFunc(d.pods, old) && slices.ContainsFunc(d.pods, func(p *pod) bool {
		// By the generation alone, it is not known that a pod of a DaemonSet has a template that is the current one again.
		return !p.ready() && (d.kind == "StatefulSet" || p.labels["pod-template-generation"] == fmt.Sprint(d.templates))
	})
}

// checkStuck checks at rest that a rollout that waits for a pod is not said to go on.
func (o *oracle) checkStuck(d *workload, got *shown) {
	created := func(p *pod) bool { return time.Since(p.created) < stuckTime }
	// Of a template that reads nothing, no pods are judged.
	if !d.waitsForAPod() || d.template.variant == readsNothing || d.annotations[recreatingAnnotation] != "" || o.recorded[d.uid].recreating != "" || o.world.onWrongClock(d) || slices.ContainsFunc(d.pods, created) {
		return
	}
	if o.tally["rollouts that wait for a pod"]++; got.State == decide.RollingOut {
		o.fail("%s waits for a pod for ever, and the state is %s (%s: %s)", workloadName(d.slot), got.State, got.Reason, got.Message)
	}
}

// stuckTime is more than the time after which a rollout that waits for a pod has failed.
const stuckTime = 10*time.Minute + slack

var waitsForPod = regexp.MustCompile(`waits for pod (\S+?),? `)

// free does what messages say about pods for which a rollout waits, until it is complete.
func (s *simulation) free(slot int) bool {
	w, done := s.world, false
	for range 8 {
		s.calm()
		d := w.workloads[slot]
		if d == nil || s.leader() == nil || w.oracle.violation != "" {
			return done
		}
		got := s.leader().show(&d.manifest)
		if got == nil || got.Reason != decide.ReasonPodsNotReady {
			return done
		}
		i := -1
		if name := waitsForPod.FindStringSubmatch(got.Message); name != nil {
			i = slices.IndexFunc(d.pods, func(p *pod) bool { return p.name == name[1] && !p.ready() })
		}
		if i < 0 {
			w.oracle.fail("%s waits for a pod, which no message names: %s", workloadName(slot), got.Message)
			return done
		}
		w.oracle.tally["pods that messages named, for which a rollout waited"]++
		done = true
		switch p := d.pods[i]; {
		case strings.Contains(got.Message, "delete"):
			if w.end(d, p); p.ordinal < d.partition { // it gets the earlier template again
				w.rollSoon(d)
				return done
			}
		case p.template.image == crashing:
			w.setTemplate(slot, d.template.variant, 0)
		case p.broken.IsZero(): // it waits for a source
			return done
		default:
			p.broken = time.Time{}
			w.tellPod(d, p, false)
		}
		w.rollSoon(d)
	}
	w.oracle.fail("%s waits for pods, although all was done that messages said", workloadName(slot))
	return done
}

// addStuck breaks pods of StatefulSets and DaemonSets in a twelfth of the histories, before and during rollouts.
func (h *history) addStuck(begin int) {
	m := maker{rand.New(rand.NewPCG(h.Seed, 10)), h}
	slot := m.workload()
	if s := &h.Workloads[slot]; m.IntN(12) > 0 || s.Borrows || customKinds[s.Kind] != nil || slot == lender && len(h.Workloads) > 1 && h.Workloads[1].Borrows {
		return
	} else if s.Kind != "DaemonSet" {
		s.Kind, s.Replicas = "StatefulSet", 1+m.IntN(3)
	}
	begin = min(begin, len(h.Operations))
	for range 2 + m.IntN(2) {
		at := begin + m.IntN(len(h.Operations)-begin+1)
		some := []operation{{Do: "break pod", A: slot, C: m.IntN(3)}, {Do: "wait", Wait: pick(m, 0, time.Second, time.Minute, 11*time.Minute)},
			pick(m, operation{Do: "set image", A: slot, C: m.IntN(3)}, operation{Do: "set image", A: slot, C: crashing}, operation{Do: "set content", A: m.source(), Content: m.content()}),
			{Do: "wait", Wait: pick(m, time.Second, time.Minute)}}
		for range m.IntN(3) {
			some = slices.Insert(some, m.IntN(len(some)+1), pick(m, operation{Do: "break pod", A: slot, C: m.IntN(3)}, operation{Do: "set image", A: slot, C: m.IntN(3)},
				operation{Do: "lose node", A: slot, C: m.IntN(3)}, operation{Do: "calm"}, operation{Do: "hand over", A: m.server()}, operation{Do: "look"}))
		}
		h.Operations = slices.Insert(h.Operations, at, append(some, operation{Do: "free rollout", A: slot})...)
	}
}
