// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"maps"
	"slices"
	"time"
)

// reaction is how an owner reacts when other clients change its workload.
type reaction string

const (
	indifferent reaction = ""
	// stripsMetadata is an operator that replaces metadata.annotations by its own, as
	// controllerutil.CreateOrUpdate makes easy; stripsTemplate replaces those of the pod template; stripsBoth
	// replaces both.
	stripsMetadata reaction = "strips metadata"
	stripsTemplate reaction = "strips template"
	stripsBoth     reaction = "strips both"
	// heals is the self-heal of Argo CD and Flux: it sets the fields of its manifest, and leaves additions of
	// other clients alone.
	heals reaction = "heals"
)

// owner is a client that reacts to changes of a workload.
type owner struct {
	reaction reaction
	delay    time.Duration
	due      time.Time // zero: there is nothing to react to
	// image, variant and replicas are those of its manifest.
	image, variant, replicas int
}

func newOwner(s *seed) owner {
	return owner{reaction: s.Reaction, delay: s.Delay, variant: s.Variants[0], replicas: s.Replicas}
}

// noticed records that a field manager has written the workload.
func (o *owner) noticed(manager string) {
	if o.reaction != indifferent && manager != "owner" && o.due.IsZero() {
		o.due = time.Now().Add(o.delay)
	}
}

// fights reports whether the owner removes what servers write.
func (o *owner) fights() bool {
	return o.reaction == stripsMetadata || o.reaction == stripsTemplate || o.reaction == stripsBoth
}

// react lets an owner update its workload.
func (w *world) react(d *workload) {
	d.holder.due = time.Time{}
	if w.workloads[d.slot] != d || d.deleting {
		return
	}
	w.logf("    %s: its owner reacts", workloadName(d.slot))
	switch d.holder.reaction {
	case stripsMetadata:
		w.rewrite(d.slot, true, false, -1)
	case stripsTemplate:
		w.rewrite(d.slot, false, true, -1)
	case stripsBoth:
		w.rewrite(d.slot, true, true, -1)
	case heals:
		w.write(d, "owner", func(m *manifest) {
			if !m.borrows {
				m.template.image = d.holder.image
				w.declare(m, d.holder.variant)
			}
			if m.kind != "DaemonSet" {
				m.replicas = d.holder.replicas
			}
			m.annotations = merged(m.annotations, d.owned)
		})
	}
}

// annotateNamespace sets an annotation of the namespace, or removes it if the text is empty.
func (w *world) annotateNamespace(annotation, text string) bool {
	if w.annotations[annotation] == text || w.terminating {
		return false
	}
	w.annotations = with(w.annotations, annotation, text)
	w.wroteNamespace()
	return true
}

func (w *world) wroteNamespace() {
	w.revision++
	w.annotated = w.revision
	w.emit(w.namespace())
}

// with returns a copy of a map with a key set, or without it if the text is empty.
func with(m map[string]string, key, text string) map[string]string {
	out := maps.Clone(m)
	if out == nil {
		out = map[string]string{}
	}
	if text == "" {
		delete(out, key)
	} else {
		out[key] = text
	}
	return out
}

// annotate sets an annotation in the manifest of a workload's owner and applies it.
func (w *world) annotate(slot int, annotation, text string) bool {
	d := w.workloads[slot]
	if d == nil {
		return false
	}
	d.owned = with(d.owned, annotation, text)
	return w.write(d, "owner", func(m *manifest) { m.annotations = with(m.annotations, annotation, text) })
}

// setTemplate applies an image and a variant, as kubectl apply and server-side apply do: additions of other
// clients stay.
func (w *world) setTemplate(slot, variant, image int) bool {
	d := w.workloads[slot]
	if d == nil || d.kind == "Job" || d.borrows {
		return false
	}
	d.holder.variant, d.holder.image = variant, image
	return w.write(d, "owner", func(m *manifest) {
		m.template.image = image
		w.declare(m, variant)
	})
}

// declare sets the variant of a template. If it is another one, its variables are those of the owner alone.
func (w *world) declare(m *manifest, variant int) {
	if m.template.variant != variant {
		m.template.variant, m.template.env = variant, ownedEnv(variant, w.seeds[m.slot].Variables)
	}
}

// rewrite replaces metadata, template or both by the owner's manifest, which has no annotations of other clients,
// as kubectl replace does. The image -1 is the current one.
func (w *world) rewrite(slot int, metadata, spec bool, image int) bool {
	d := w.workloads[slot]
	if d == nil || d.kind == "Job" && (spec || image >= 0) || d.borrows && image >= 0 {
		return false
	}
	if image >= 0 {
		d.holder.image = image
	}
	return w.write(d, "owner", func(m *manifest) {
		if metadata {
			m.annotations = d.owned
		}
		if spec {
			m.restartAt = ""
		}
		if spec && !m.borrows {
			m.template.annotations, m.template.env = nil, ownedEnv(m.template.variant, w.seeds[m.slot].Variables)
		}
		if image >= 0 {
			m.template.image = image
		}
	})
}

// editWorkload changes a label, as its owner or another client.
func (w *world) editWorkload(slot int, owner bool) bool {
	d := w.workloads[slot]
	manager := "editor"
	if owner {
		manager = "owner"
	}
	return d != nil && w.write(d, manager, func(m *manifest) { m.label++ })
}

// scale sets the number of replicas, either in the owner's manifest too, or as an autoscaler. For a DaemonSet, it
// is the number of nodes that should have a pod: the others lose theirs, or are tainted.
func (w *world) scale(slot, replicas int, owner bool) bool {
	d := w.workloads[slot]
	if d == nil || d.runs() {
		return false
	}
	if d.kind == "DaemonSet" {
		if d.replicas == replicas {
			return false
		}
		d.replicas, d.tainted = replicas, !owner
		w.rollSoon(d)
		return true
	}
	manager := "autoscaler"
	if owner {
		manager, d.holder.replicas = "owner", replicas
	}
	if s := d.set(d.largest); d.kind == "Deployment" && 0 < d.replicas && d.replicas < replicas && s != nil && d.hasPods(s) {
		w.addPod(d, s, 0) // in a rollout, ReplicaSets are scaled in proportion
	}
	return w.write(d, manager, func(m *manifest) { m.replicas = replicas })
}

// hold sets a partition, or the update strategy OnDelete.
func (w *world) hold(slot, partition int, onDelete bool) bool {
	d := w.workloads[slot]
	return d != nil && (d.ordered() || d.kind == "DaemonSet" && partition == 0) && w.write(d, "owner", func(m *manifest) {
		m.partition, m.onDelete = partition, onDelete
		if onDelete {
			m.partition = 0
		}
	})
}

// undo is kubectl rollout undo. For a Deployment, it also replaces the annotations by those of the ReplicaSet. It
// does nothing if the template is already the same.
func (w *world) undo(slot int) bool {
	d := w.workloads[slot]
	if d == nil || d.paused || d.runs() || d.borrows || len(d.sets) < 2 {
		return false
	}
	sorted := slices.SortedFunc(slices.Values(d.sets), func(a, b *set) int { return int(b.number - a.number) })
	if sorted[1].identity == d.template.identity() {
		return false
	}
	w.oracle.undone[d.uid] = true
	return w.write(d, "kubectl-rollout", func(m *manifest) {
		m.template = sorted[1].template
		if m.kind == "Deployment" {
			m.annotations = sorted[1].annotations
		}
	})
}

// restart is kubectl rollout restart.
func (w *world) restart(slot int) bool {
	d := w.workloads[slot]
	return d != nil && !d.paused && !d.runs() && !d.borrows && w.write(d, "kubectl-rollout", func(m *manifest) {
		m.template.annotations = with(m.template.annotations, "kubectl.kubernetes.io/restartedAt", time.Now().Format(time.RFC3339Nano))
	})
}

func (w *world) pause(slot int, paused bool) bool {
	d := w.workloads[slot]
	return d != nil && d.kind == "Deployment" && w.write(d, "kubectl", func(m *manifest) { m.paused, d.pausedByServer = paused, false })
}
