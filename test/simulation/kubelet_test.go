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

// kubelets are the delays of all kubelets in a history. Without any, kubelets see and do everything at once.
type kubelets struct {
	// Start is how long a new pod takes until its volumes are set up; each of its containers takes a third of that more than the one before.
	Start time.Duration `json:"start,omitempty"`
	// Refresh is how often the volumes of a pod are refreshed.
	Refresh time.Duration `json:"refresh,omitempty"`
	// Lag is how old the variables are that a container reads, unless the pod is younger.
	Lag time.Duration `json:"lag,omitempty"`
	// Grace is how long a pod that is deleted takes to end.
	Grace time.Duration `json:"grace,omitempty"`
	// Deadline is how long the rollout of a Deployment may take without progress. Without it, none fails.
	Deadline time.Duration `json:"deadline,omitempty"`
}

// startsWith reports whether a container with this use starts with what was read of the source.
func (u use) startsWith(r reading) bool { return u.starts(r.content != content{}, r.content) }

// reading returns the content of a source.
func (w *world) reading(source int) reading {
	return reading{w.sources[source].content, w.sources[source].changed}
}

// readingAt returns the content of a source at a time.
func (w *world) readingAt(source int, at time.Time) reading {
	for _, ch := range slices.Backward(w.changes[source]) {
		if !ch.at.After(at) {
			return reading{ch.is, ch.to}
		}
	}
	return reading{}
}

// seen returns the content of a source that the kubelet of a pod has read.
func (w *world) seen(p *pod, source int) reading {
	if w.kubelets.Lag == 0 {
		return w.reading(source)
	}
	at := time.Now().Add(-w.kubelets.Lag)
	if at.Before(p.setUp) { // the kubelet began to read the source for this pod
		at = p.setUp
	}
	return w.readingAt(source, at)
}

// file returns what a volume of a pod shows of a source: its content when the volume was last refreshed. A volume that cannot be set up again stays as it is.
func (w *world) file(p *pod, u use) reading {
	if w.kubelets.Refresh == 0 {
		for _, ch := range slices.Backward(w.changes[u.source]) {
			if ch.to <= p.files[u.source].since {
				break
			}
			if r := (reading{ch.is, ch.to}); u.startsWith(r) {
				return r
			}
		}
		return p.files[u.source]
	}
	told := p.told
	for at := p.setUp.Add(time.Since(p.setUp).Truncate(w.kubelets.Refresh)); at.After(p.setUp) || told.After(p.setUp); {
		last := at
		if told.After(at) {
			last, told = told, time.Time{}
		} else {
			at = at.Add(-w.kubelets.Refresh)
		}
		if r := w.readingAt(u.source, last); u.startsWith(r) {
			return r
		}
	}
	return p.files[u.source]
}

// forget lets a kubelet forget when a container started: an init container that has long ended, or one that has been restarted.
func (w *world) forget(d *workload, n int) bool {
	if len(d.pods) == 0 {
		return false
	}
	p := d.pods[n%len(d.pods)]
	i := n / len(d.pods) % len(p.containers)
	c := &p.containers[i]
	ended := variants[p.template.variant][i].role == initContainer && p.containers[len(p.containers)-1].started != 0
	if p.terminating || c.started == 0 || c.restarts == 0 && !ended {
		return false
	}
	c.at = time.Time{}
	w.tellPod(d, p, false)
	return true
}

// firstStart returns when the first of the main containers of a pod started, before which the init containers did.
func (p *pod) firstStart() (at time.Time) {
	for i, c := range p.containers {
		if variants[p.template.variant][i].role == mainContainer && c.started != 0 && (at.IsZero() || c.real.Before(at)) {
			at = c.real
		}
	}
	return at
}

// addKubelets gives two of three histories kubelets that take their time, and wrong clocks to some of their nodes. In these, containers crash for a while,
// kubelets forget containers, minutes pass, and workloads are released and opted in when nothing else happens.
func (h *history) addKubelets(begin int) {
	m := maker{rand.New(rand.NewPCG(h.Seed, 5)), h}
	if m.IntN(3) == 0 {
		return
	}
	between := func(a, b time.Duration) time.Duration { return a + time.Duration(m.Int64N(int64(b-a))) }
	h.Kubelets = kubelets{
		Start:   pick(m, 0, between(300*time.Millisecond, 4*time.Second), between(longStart, 6*time.Second), between(longStart, 30*time.Second)),
		Refresh: pick(m, 0, between(60*time.Second, 90*time.Second), between(60*time.Second, 90*time.Second)),
		Lag:     pick(m, 0, between(100*time.Millisecond, time.Second)),
		Grace:   pick(m, 0, between(300*time.Millisecond, 6*time.Second)),

		Deadline: pick(m, 0, 2*time.Minute, 10*time.Minute),
	}
	if m.IntN(2) == 0 {
		h.ReleaseSettle = 20 * time.Second
	}
	if m.IntN(8) == 0 {
		h.Skews.Nodes[m.IntN(len(h.Skews.Nodes))] = (between(0, 4*time.Hour) - 2*time.Hour) / time.Duration(1+m.IntN(60))
	}
	insert := func(at int, operations ...operation) int {
		h.Operations = slices.Insert(h.Operations, at, operations...)
		return at + len(operations)
	}
	crash := func() operation {
		return operation{Do: "restart container", A: m.workload(), C: m.IntN(12), Wait: pick(m, 0, between(0, 20*time.Second), between(0, 5*time.Minute))}
	}
	pause := func() operation {
		return operation{Do: "wait", Wait: pick(m, between(0, 5*time.Second), between(0, 40*time.Second), between(0, 3*time.Minute), between(0, 10*time.Minute))}
	}
	begin = min(begin, len(h.Operations))
	for range 4 + m.IntN(6) {
		at := begin + m.IntN(len(h.Operations)-begin+1)
		switch slot := m.workload(); m.IntN(8) {
		case 0:
			o := operation{Do: "release template", A: slot, B: m.source(), C: 1 + m.IntN(4), Wait: pick(m, 0, between(0, 300*time.Millisecond))}
			insert(at, o)
		case 1:
			insert(at, operation{Do: "opt in at rest", A: slot})
		case 2:
			insert(at, operation{Do: "forget", A: slot, C: m.IntN(12)}, pause())
		case 3:
			source := m.source()
			insert(at, pause(), operation{Do: "delete source", A: source}, pause(), crash(), pause(), operation{Do: "return source", A: source}, pause(), crash())
		case 4:
			insert(at, operation{Do: "there and back", A: m.source(), B: m.IntN(keyCount), C: max(1, int(m.value())), Wait: between(0, 40*time.Second)}, crash(), pause())
		case 5:
			id := m.server()
			insert(at, pause(), operation{Do: "kill", A: id}, operation{Do: "remove key", A: m.source(), B: m.IntN(keyCount)}, pause(), crash(),
				operation{Do: "birth", A: id}, operation{Do: "lead", A: id}, pause())
		default:
			insert(at, pause(), crash(), operation{Do: "set content", A: m.source(), Content: m.content()}, pause())
		}
	}
}

// longStart is a time after which the containers of a pod certainly start in a later second than that in which it was created.
const longStart = 3200 * time.Millisecond

// quiet reports whether a change of a workload by its owner is seen alone, and no clock hides it.
func (s *simulation) quiet(d *workload) bool {
	return d != nil && !d.exempt(s.leader()) && !d.onDelete && d.partition == 0 && d.replicas > 0 && s.world.skews.small() && s.world.leaders() == 1
}

// leader returns a server that leads; nil: none does.
func (s *simulation) leader() *server {
	for _, server := range s.world.servers {
		if server.leads {
			return server
		}
	}
	return nil
}

// release writes content and template of a workload that is in sync when nothing else happens. That is one rollout.
func (s *simulation) release(o operation) bool {
	s.calm()
	w := s.world
	d := w.workloads[o.A]
	if !s.quiet(d) || w.kubelets.Start < longStart || !w.sources[o.B].present {
		return false
	}
	rules := s.leader().rules(&d.manifest)
	if got := s.leader().show(&d.manifest); got == nil || got.State != decide.InSync || !rules.managed() || rules.agent || rules.settle < 500*time.Millisecond && o.Wait > 0 {
		return false
	}
	before, c := w.oracle.restarted[d.uid], w.sources[o.B].content
	for k := range c {
		c[k] = 1 + (c[k]+value(o.C)-1)%5
	}
	if !w.setContent(o.B, c, false) {
		return false
	}
	if o.Wait > 0 {
		s.sleep(o.Wait)
	}
	if !w.setTemplate(o.A, d.template.variant, (d.template.image+1)%3) {
		return false
	}
	s.calm()
	// A rollout that fails does not bring the content, and a driver may write other content.
	driven := slices.ContainsFunc(w.seeds, func(s seed) bool { return s.Syncs })
	if n := w.oracle.restarted[d.uid] - before; n > 0 && !d.progress.failed && !driven {
		w.oracle.fail("a release of %s was %d rollouts", workloadName(o.A), 1+n)
	}
	w.oracle.tally["releases"]++
	return true
}

// optIn opts a workload in when nothing else happens. That restarts nothing.
func (s *simulation) optIn(o operation) bool {
	s.calm()
	w := s.world
	d := w.workloads[o.A]
	if !s.quiet(d) {
		return false
	}
	if rules := s.leader().rules(&d.manifest); rules.mode != "off" || rules.invalid || d.annotations[appliedAnnotation] != "" {
		return false
	}
	if got := s.leader().show(&d.manifest); got == nil || got.Reason == decide.ReasonInvalidAnnotation && !strings.Contains(got.Message, "has no effect without") { // it has tried to opt in, so that its record is known
		return false
	}
	before := w.oracle.restarted[d.uid]
	w.annotate(o.A, reloadAnnotation, "auto")
	s.calm()
	if n := w.oracle.restarted[d.uid] - before; n > 0 {
		w.oracle.fail("opting in restarted %s", workloadName(o.A))
	}
	w.oracle.tally["workloads opted in at rest"]++
	return true
}
