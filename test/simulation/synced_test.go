// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/configdep/configdep/pkg/decide"
)

// A Secret that the driver of the SecretProviderClass makes of what it has mounted, as the class declares in secretObjects: it is there only as long as pods mount
// the class, and may be missing while they run.

// synced is that Secret.
const synced = 2

// syncTime is how long the driver takes.
const syncTime = 500 * time.Millisecond

// syncSoon lets the driver make the Secret, or delete it.
func (w *world) syncSoon(d *workload) {
	if d.syncs && w.syncs.IsZero() {
		w.syncs = time.Now().Add(syncTime)
	}
}

// sync makes the Secret if pods mount the class, and deletes it if none does.
func (w *world) sync() {
	if !slices.ContainsFunc(w.workloads, func(d *workload) bool {
		return d != nil && d.syncs && slices.ContainsFunc(d.pods, func(p *pod) bool { return p.mount != nil })
	}) {
		w.deleteSource(synced)
		return
	}
	c := content{value(1 + w.stored%valueCount), 1, 1}
	if !w.createSource(synced, c) {
		w.setContent(synced, c, false)
	}
}

// checkSynced checks that no state requires a Secret that pods may bring.
func (o *oracle) checkSynced(s *server, m *manifest, got *shown) {
	if m.syncs && !s.view.sources[synced].present && got.rules.managed() {
		o.tally["states without a Secret that new pods bring"]++
	}
	for source, name := range sourceNames {
		if m.mounts && isSecret(source) && got.State == decide.Blocked && strings.Contains(got.Message, "Secret "+name+" is missing") {
			o.fail("%s: server %d waits for the Secret %s, which only new pods may bring: %s", workloadName(m.slot), s.id, name, got.Message)
		}
	}
}

// addSynced lets the driver make a Secret in a twelfth of the histories, which goes with the last pod, or is deleted while others change.
func (h *history) addSynced(begin int) {
	m := maker{rand.New(rand.NewPCG(h.Seed, 13)), h}
	slot := m.workload()
	s := &h.Workloads[slot]
	if m.IntN(12) > 0 || s.Kind == "Job" || s.Kind == "CronJob" || s.Agents != 0 || s.Annotations[strategyAnnotation] == "in-place" || len(h.Workloads) > 1 && h.Workloads[1].Borrows {
		return
	}
	s.Mounts, s.Syncs = true, true
	for i := range s.Variants {
		s.Variants[i] = pick(m, 0, 2, readsS0, twoContainers)
	}
	begin = min(begin, len(h.Operations))
	pause := func() operation { return operation{Do: "wait", Wait: pick(m, time.Second, 3*time.Second, time.Minute)} }
	change := func() operation { return operation{Do: "set content", A: m.IntN(2), Content: m.content()} }
	for range 3 + m.IntN(3) {
		at := begin + m.IntN(len(h.Operations)-begin+1)
		h.Operations = slices.Insert(h.Operations, at, pick(m,
			[]operation{{Do: "delete source", A: synced}, pause(), change(), pause(), {Do: "look"}},
			[]operation{{Do: "scale", A: slot}, pause(), change(), pause(), {Do: "scale", A: slot, B: 1 + m.IntN(2)}, pause(), change()},
			[]operation{{Do: "rotate"}, {Do: "poll"}, {Do: "poll", A: 1}, pause(), {Do: "poll", A: 2}},
			[]operation{{Do: "rotate"}, {Do: "evict pod", A: slot, C: m.IntN(4)}, pause(), {Do: "set image", A: slot, B: m.IntN(2), C: m.IntN(3)}, pause()},
		)...)
	}
	h.Operations = slices.DeleteFunc(h.Operations, func(o operation) bool { // no other client makes it
		return o.A == synced && (o.Do == "create source" || o.Do == "return source" || o.Do == "recreate source") || o.B == synced && o.Do == "release template"
	})
}
