package dependency

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// The kubelet holds a whole pod back until all of its volumes can be made. A container
// whose environment cannot be made fails alone: the others start, except those that come
// after an init container that has yet to finish. (kubelet: WaitForAttachAndMount in
// SyncPod, and computePodActions and SyncPod of the runtime manager.)
//
// So the containers of a pod start through gates, each of which opens when what it requires is
// present: gate 0 is for the volumes, gate i+1 for stage i.

// stage is a container with an environment that is made from sources, in the order in which
// the containers of a pod start.
type stage struct {
	container string
	// init: the containers after it start when it has finished. A sidecar is not counted: that
	// the kubelet may wait for it too only means that they may start later.
	init bool
}

func stagesOf(pod *corev1.PodSpec) (stages []stage) {
	for i := range pod.InitContainers {
		c := &pod.InitContainers[i]
		if readsEnvironment(c) {
			sidecar := c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
			stages = append(stages, stage{c.Name, !sidecar})
		}
	}
	for i := range pod.Containers {
		if c := &pod.Containers[i]; readsEnvironment(c) {
			stages = append(stages, stage{c.Name, false})
		}
	}
	return stages
}

func readsEnvironment(c *corev1.Container) bool {
	return len(c.EnvFrom) > 0 || slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool {
		return e.ValueFrom != nil && (e.ValueFrom.ConfigMapKeyRef != nil || e.ValueFrom.SecretKeyRef != nil)
	})
}

// gate is what is known of when the containers behind it started, of the current template.
type gate struct {
	// start is a lower bound, as a resourceVersion.
	start uint64
	// waiting: something that they require has been missing since before the template came, so
	// that none can have started.
	waiting bool
	// lost is when something that they require was last seen to be removed, or to change and still
	// lack a key. What comes later with an earlier version, because it is read on another
	// stream, may have been present before that.
	lost uint64
}

// Started returns a lower bound of when the containers that a use passes content to first
// read it, as a resourceVersion; 0: it is not known.
func (g *Graph) Started(w *Workload, u *Use) uint64 {
	if g.severalCounters {
		return 0
	}
	if at := w.gateOf(u); at >= 0 && at < len(w.gates) {
		return w.gates[at].start
	}
	return w.StartVersion
}

// gateOf returns the number of the gate behind which a use is read, or -1.
func (w *Workload) gateOf(u *Use) int {
	switch u.Type {
	case Volume, Projected:
		return 0
	case Env, EnvFrom:
		return slices.IndexFunc(w.stages, func(s stage) bool { return s.container == u.Container }) + 1
	default:
		return -1
	}
}

// holds reports whether a use that a pod requires holds back a gate.
func (w *Workload) holds(u *Use, gate int) bool {
	if u.Optional {
		return false
	}
	switch u.Type {
	case Volume, Projected, CSI, VolumeSecret:
		return true
	case Env, EnvFrom:
		at := w.gateOf(u)
		return at == gate || 0 < at && at < gate && w.stages[at-1].init
	default:
		return false
	}
}

// lacks reports whether a use that holds back a gate is not satisfied.
func (g *Graph) lacks(w *Workload, r *Reference, u *Use) bool {
	if !r.Kind.Observed() {
		return false
	}
	s := g.Source(SourceKey{r.Kind, w.Namespace, r.Name})
	switch {
	case s == nil:
		return true
	case u.Type == Env:
		return slices.ContainsFunc(u.Keys, func(key string) bool { k := s.key(key); return k == nil || k.Binary })
	case u.SubPath: // which may name a file that the volume does not need
		return false
	case u.Type == Volume, u.Type == Projected:
		return slices.ContainsFunc(u.Keys, func(key string) bool { return !s.Has(key) })
	default:
		return false
	}
}

// closed reports whether anything holds back a gate, of the references that are selected.
func (g *Graph) closed(w *Workload, gate int, selected func(*Reference) bool) bool {
	for i := range w.References {
		r := &w.References[i]
		if !selected(r) {
			continue
		}
		for j := range r.Uses {
			if u := &r.Uses[j]; w.holds(u, gate) && g.lacks(w, r, u) {
				return true
			}
		}
	}
	return false
}

// beginWaiting notes which containers of a new template certainly have to wait: what they require
// was missing before it came.
func (g *Graph) beginWaiting(w *Workload) {
	w.gates = nil
	if w.StartVersion == 0 || g.severalCounters {
		return
	}
	gates := make([]gate, len(w.stages)+1)
	waiting := false
	for i := range gates {
		gates[i] = gate{start: w.StartVersion, waiting: g.closed(w, i, func(r *Reference) bool {
			key := SourceKey{r.Kind, w.Namespace, r.Name}
			if s := g.Source(key); s != nil {
				return s.Change.Version < w.StartVersion
			}
			return g.missingSince(key) < w.StartVersion
		})}
		waiting = waiting || gates[i].waiting
	}
	if waiting {
		w.gates = gates
	}
}

// endWaiting opens the gates that have what they require after a change of a source.
func (g *Graph) endWaiting(key SourceKey, change Change) {
	is := func(r *Reference) bool { return r.Kind == key.Kind && r.Name == key.Name }
	var users []*Workload
	g.users.of(key, func(w *Workload) bool {
		if len(w.gates) > 0 {
			users = append(users, w)
		}
		return true
	})
	for _, w := range users {
		var next *Workload
		for i, before := range w.gates {
			if !before.waiting || !w.heldBy(i, is) {
				continue
			}
			now := before
			switch {
			case g.closed(w, i, is):
				now.lost = max(now.lost, change.Version)
			case !change.Exact, change.Version < now.lost, g.severalCounters, w.StartVersion <= g.since.Version:
				now = gate{start: now.start} // it is not known when they start
			case g.closed(w, i, func(*Reference) bool { return true }):
				continue
			default:
				now = gate{start: max(now.start, change.Version+1)}
			}
			if next == nil {
				copied := *w // values in the graph are immutable
				next = &copied
				next.gates = slices.Clone(w.gates)
			}
			next.gates[i] = now
		}
		if next != nil {
			g.SetWorkload(next, g.patternsOf(w.WorkloadKey))
		}
	}
}

// heldBy reports whether a reference that is selected can hold back a gate.
func (w *Workload) heldBy(gate int, selected func(*Reference) bool) bool {
	for i := range w.References {
		r := &w.References[i]
		if selected(r) && slices.ContainsFunc(r.Uses, func(u Use) bool { return w.holds(&u, gate) }) {
			return true
		}
	}
	return false
}
