// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"maps"
	"slices"
	"time"
)

// Revisions. The world counts all events with one number. The API shows it plus an offset, which differs between
// workloads and sources if they are in different etcds, and which decreases when an etcd is restored from a
// backup.

// counter returns the revision counter of a resource.
func counter(id streamID) int {
	if id == configMaps || id == secrets {
		return 1
	}
	return 0
}

// severalCounters reports whether revisions of workloads and of sources cannot be compared.
func (w *world) severalCounters() bool { return w.offsets[0] != w.offsets[1] }

// shown returns the resourceVersion of an event at a revision.
func (w *world) shown(id streamID, revision uint64) uint64 { return revision + w.offsets[counter(id)] }

// apiTime is the time of the API server that writes a resource.
func (w *world) apiTime(id streamID) time.Time { return time.Now().Add(w.skews.API[counter(id)]) }

// nodeTime is the time of a node.
func (w *world) nodeTime(node int) time.Time {
	return time.Now().Add(w.skews.Nodes[node%len(w.skews.Nodes)])
}

// skews are the errors of clocks, which are constant in a history.
type skews struct {
	API     [2]time.Duration `json:"api"` // by counter: the API server that gets the request
	Servers [2]time.Duration `json:"servers"`
	Nodes   [3]time.Duration `json:"nodes"`
}

// right reports whether all clocks are right.
func (s *skews) right() bool { return *s == skews{} }

// backup is the state of etcd at a revision.
type backup struct {
	revision    uint64
	offsets     [2]uint64
	annotations map[string]string
	sources     [sourceCount]source
	workloads   []*workload
}

// elsewhere is how much is written to other objects after a backup, so that revisions do not repeat soon after a
// restore, unless they are overtaken at once.
const elsewhere = 10_000

// backUp stores the current state.
func (w *world) backUp() bool {
	b := &backup{revision: w.revision, offsets: w.offsets, annotations: w.annotations, sources: w.sources}
	for _, d := range w.workloads {
		if d != nil {
			copied := *d
			copied.pods, copied.sets = nil, nil
			for _, p := range d.pods {
				c := *p
				c.containers = slices.Clone(p.containers)
				copied.pods = append(copied.pods, &c)
			}
			for _, s := range d.sets {
				c := *s
				copied.sets = append(copied.sets, &c)
			}
			copied.owned = maps.Clone(d.owned)
			d = &copied
		}
		b.workloads = append(b.workloads, d)
	}
	w.backup = b
	for i := range w.offsets {
		w.offsets[i] += elsewhere
	}
	return true
}

// restore restores the state of the last backup, in every etcd. Watches end. Kubelets stop pods that no longer
// exist, and start pods that exist again. A pod that has run all the time continues. Overtaken: before any server reads
// again, so much is written to other objects that no revision is lower than what it has read before.
func (w *world) restore(overtaken bool) bool {
	b := w.backup
	if b == nil || w.terminating {
		return false
	}
	w.backup = nil
	back := w.revision - b.revision
	w.revision++
	w.restored = w.revision
	for i := range w.offsets {
		w.offsets[i] = b.offsets[i] - back
		if overtaken {
			w.offsets[i] += back + 2*elsewhere
		}
	}
	w.annotations = b.annotations
	for slot := range w.sources {
		was := w.sources[slot]
		s := b.sources[slot]
		s.changed, s.keys = was.changed, was.keys
		if s.content != was.content || s.present != was.present {
			s.changed = w.revision
		}
		for k := range s.content {
			if s.content[k] != was.content[k] {
				s.keys[k] = w.revision
			}
		}
		w.sources[slot] = s
	}
	for slot, now := range w.workloads {
		d := b.workloads[slot]
		if d != nil && d.kind == boat && w.definition.absent { // it is stored elsewhere
			d = nil
		}
		w.workloads[slot] = d
		if d == nil {
			continue
		}
		d.restored(w, now)
	}
	for slot := range w.sources {
		if w.sources[slot].changed == w.revision {
			w.contentChanged(slot)
		}
	}
	for _, s := range w.servers {
		s.restored()
	}
	w.oracle.look()
	for _, d := range w.workloads {
		if d != nil {
			w.rollSoon(d)
		}
	}
	return true
}

// restored combines the pods of a workload that was restored with the ones that run.
func (d *workload) restored(w *world, now *workload) {
	if now != nil && now.uid == d.uid {
		d.truth.adopted = now.truth.adopted
		d.started = now.started
	}
	d.truth.templated, d.truth.shown, d.truth.rolled = w.revision, w.revision, w.revision
	d.maybe = startedWith(w.contents())
	for i, p := range d.pods {
		if now != nil {
			if at := slices.IndexFunc(now.pods, func(o *pod) bool { return o.uid == p.uid }); at >= 0 && !now.pods[at].terminating {
				annotations := p.annotations
				p = now.pods[at]
				d.pods[i] = p
				w.annotatePod(d, p, annotations)
				continue
			}
		}
		for j := range p.containers {
			p.stop(j)
		}
		p.mounted, p.terminating, p.inPlace.down, p.inPlace.stuck, p.inPlace.unready, p.acts = false, false, false, false, false, time.Time{}
		w.kubelet(d, p)
	}
	for _, p := range d.pods {
		for _, c := range p.containers {
			for s := range d.maybe {
				for k := range d.maybe[s] {
					d.maybe[s][k] |= c.known[s][k]
				}
			}
		}
	}
}
