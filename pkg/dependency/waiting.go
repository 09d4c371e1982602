// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"math"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
)

// The kubelet holds a whole pod back until all of its volumes can be created. A container
// whose environment cannot be created fails alone: the others start, except those after
// an init container that has yet to finish. (kubelet: WaitForAttachAndMount in SyncPod,
// and computePodActions and SyncPod of the runtime manager.)
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

// gate is what is known about when the containers behind it started, for the current
// template.
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
	gates := g.gatesOf(w)
	if at := w.gateOf(u); at >= 0 && at < len(gates) {
		return gates[at].start
	}
	return w.StartVersion
}

// gateOf returns the number of the gate behind which a use is read, or -1.
func (w *Workload) gateOf(u *Use) int {
	switch u.Type {
	case Volume, Projected:
		return 0
	case Env, EnvFrom:
		return w.stageOf(u.Container) + 1
	default:
		return -1
	}
}

// fewStages is how many stages are searched one by one.
const fewStages = 16

// stageOf returns the number of the stage of a container, or -1.
func (w *Workload) stageOf(container string) int {
	if w.stageNumbers == nil {
		return slices.IndexFunc(w.stages, func(s stage) bool { return s.container == container })
	}
	if at, found := w.stageNumbers[container]; found {
		return at
	}
	return -1
}

// numberStages lets stageOf find one of many.
func (w *Workload) numberStages() {
	if len(w.stages) <= fewStages {
		return
	}
	w.stageNumbers = make(map[string]int, len(w.stages))
	for i := range w.stages {
		w.stageNumbers[w.stages[i].container] = i
	}
}

// gateSet are some of the gates of a workload.
type gateSet struct {
	from   int // these and all after them
	single map[int]bool
}

// noGate is the set without any.
func noGate() gateSet { return gateSet{from: math.MaxInt} }

func (s *gateSet) has(gate int) bool { return gate >= s.from || s.single[gate] }

// add adds the gates that a use holds back which a pod requires.
func (s *gateSet) add(w *Workload, u *Use) {
	switch u.Type {
	case Volume, Projected, CSI, VolumeSecret:
		s.from = 0
	case Env, EnvFrom:
		switch at := w.gateOf(u); {
		case at == 0, s.has(at):
		case w.stages[at-1].init:
			s.from = at
		default:
			if s.single == nil {
				s.single = map[int]bool{}
			}
			s.single[at] = true
		}
	}
}

// held returns the gates that references which are selected hold back, by the uses that pods require and for
// which a condition holds.
func (w *Workload) held(selected func(*Reference) bool, condition func(*Reference, *Use) bool) gateSet {
	set := noGate()
	for i := range w.References {
		r := &w.References[i]
		if !selected(r) {
			continue
		}
		for j := range r.Uses {
			if u := &r.Uses[j]; !u.Optional && condition(r, u) {
				set.add(w, u)
			}
		}
	}
	return set
}

// closed returns the gates that references which are selected hold back by what is not satisfied.
func (g *Graph) closed(w *Workload, selected func(*Reference) bool) gateSet {
	var of *Reference // what resolved is about
	var resolved Resolution
	return w.held(selected, func(r *Reference, u *Use) bool {
		if of != r {
			of, resolved = r, g.lookUp(w.Namespace, r)
		}
		return resolved.Observed && !resolved.MayExist && resolved.Source.lacks(u)
	})
}

// lacks reports whether a use that holds back a gate is not satisfied by the source, which may be nil.
func (s *Source) lacks(u *Use) bool {
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

// beginWaiting notes which containers of a new template certainly have to wait: what they require
// was missing before it came.
func (g *Graph) beginWaiting(w *Workload) {
	w.gates, w.heard = nil, g.arrived
	if w.StartVersion == 0 || g.severalCounters {
		return
	}
	closed := g.closed(w, func(r *Reference) bool {
		key := SourceKey{r.Kind, w.Namespace, r.Name}
		if s := g.Source(key); s != nil {
			return max(s.Change.Version, s.listedAt) < w.StartVersion
		}
		return g.missingSince(key) < w.StartVersion
	})
	gates := make([]gate, len(w.stages)+1)
	waiting := false
	for i := range gates {
		gates[i] = gate{start: w.StartVersion, waiting: closed.has(i)}
		waiting = waiting || gates[i].waiting
	}
	if waiting {
		w.gates = gates
	}
}

// arrival is a change of a source for which workloads wait. There may be many, so they are updated in parts. A workload
// that has not been updated yet is evaluated on demand, as if it had been.
type arrival struct {
	key    SourceKey
	change Change
	number uint64
	// listed: a list showed it. What containers wait for may have been there before, and gone again.
	listed bool
	graph  *Graph // the sources as they were then, and what versions mean
}

// gatesOf returns the gates of a workload, whether or not it has been updated with all
// arrivals.
func (g *Graph) gatesOf(w *Workload) []gate {
	gates := w.gates
	if len(gates) > 0 {
		for i := range g.arrivals {
			if a := &g.arrivals[i]; a.number > w.heard {
				gates = a.open(w, gates)
			}
		}
	}
	return gates
}

// open returns gates of a workload after the source has come, or has changed or gone. They stay the same if nothing
// waits for it.
func (a *arrival) open(w *Workload, gates []gate) []gate {
	g, is := a.graph, func(r *Reference) bool { return r.Kind == a.key.Kind && r.Name == a.key.Name }
	if w.Namespace != a.key.Namespace {
		return gates
	}
	held := w.held(is, func(*Reference, *Use) bool { return true })
	closed := g.closed(w, is)
	all := sync.OnceValue(func() gateSet { return g.closed(w, func(*Reference) bool { return true }) })
	byAny := func(gate int) bool {
		set := all()
		return set.has(gate)
	}
	cloned := false
	for i, before := range gates {
		if !before.waiting || !held.has(i) {
			continue
		}
		now := before
		switch {
		case closed.has(i) && !a.listed:
			now.lost = max(now.lost, a.change.Version)
		case a.listed && !closed.has(i) && a.change.Exact:
			continue // it was written, and has what it had
		case !a.change.Exact, a.listed, a.change.Version < now.lost, g.severalCounters, w.StartVersion <= g.since.Version:
			now = gate{start: now.start} // it is not known when they start
		case byAny(i):
			continue
		default:
			now = gate{start: max(now.start, a.change.Version+1)}
		}
		if !cloned { // values in the graph are immutable
			gates, cloned = slices.Clone(gates), true
		}
		gates[i] = now
	}
	return gates
}

// maxTold is how many workloads are updated for a change of a source in one part. One may take some
// milliseconds.
const maxTold = 1

// endWaiting opens the gates that have what they require after a change of a source.
func (g *Graph) endWaiting(key SourceKey, change Change) {
	if !g.waiting.any(key) {
		return
	}
	g.arrived++
	listed := change.After != 0 // a deletion that came by an event has no version after which it was made
	if s := g.Source(key); s != nil {
		listed = s.listedAt == ParseVersion(s.ResourceVersion)
	}
	g.arrivals = append(g.arrivals, arrival{key, change, g.arrived, listed, &Graph{
		sources: g.sources.clone(), unread: g.unread.clone(), leftOut: g.leftOut, selectedByLabel: g.selectedByLabel,
		since: g.since, severalCounters: g.severalCounters,
	}})
	g.TellWaiting(g.bounds.told)
}

// TellWaiting updates the given number of workloads for changes of sources for which they wait, and reports whether
// there are more.
func (g *Graph) TellWaiting(most int) (more bool) {
	for len(g.arrivals) > 0 {
		first := &g.arrivals[0]
		var waiting []*Workload
		g.waiting.from(first.key, g.toldLast, func(w *Workload) bool {
			if more = len(waiting) == most; !more {
				waiting = append(waiting, w)
			}
			return !more
		})
		for _, w := range waiting {
			g.tell(w)
			g.toldLast = w.WorkloadKey
		}
		if more {
			return true
		}
		most -= len(waiting)
		if g.arrivals, g.toldLast = g.arrivals[1:], (WorkloadKey{}); len(g.arrivals) == 0 {
			g.arrivals = nil // what they need is let go
		}
	}
	return false
}

// tell updates a workload with all arrivals.
func (g *Graph) tell(w *Workload) *Workload {
	if len(w.gates) == 0 || w.heard == g.arrived {
		return w
	}
	gates := g.gatesOf(w)
	if &gates[0] == &w.gates[0] { // nothing waited for it
		return w
	}
	next := *w
	next.gates, next.heard = gates, g.arrived
	g.SetWorkload(&next, g.patternsOf(w.WorkloadKey))
	return &next
}

// Told returns a workload, or nil, updated with all arrivals for which it may have waited. That is needed before
// another state replaces it.
func (g *Graph) Told(key WorkloadKey) *Workload {
	w := g.Workload(key)
	if w == nil || len(g.arrivals) == 0 {
		return w
	}
	return g.tell(w)
}

// whileWaiting returns the use if the workload waits for anything that its template requires.
func (u use) whileWaiting() use {
	if u.workload == nil || !slices.ContainsFunc(u.workload.gates, func(g gate) bool { return g.waiting }) {
		return use{}
	}
	return use{workload: u.workload}
}
