// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
)

// defaults are flags of the servers.
type defaults struct {
	Mode          string        `json:"defaultMode"`
	ReleaseSettle time.Duration `json:"releaseSettle,omitempty"`
}

// history is the initial state of a world and the operations on it.
type history struct {
	Seed    uint64 `json:"seed"`
	Servers int    `json:"servers"`
	defaults
	Workloads  []seed        `json:"workloads"`
	Waves      *waves        `json:"waves,omitempty"`
	Batches    bool          `json:"batches,omitempty"`
	Pace       time.Duration `json:"pace,omitempty"`
	Skews      skews         `json:"skews,omitzero"`
	Kubelets   kubelets      `json:"kubelets,omitzero"`
	Operations []operation   `json:"operations"`
}

func (h *history) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d servers, defaults %+v, batches %v, pace %v, skews %v, kubelets %+v\n", h.Servers, h.defaults, h.Batches, h.Pace, h.Skews, h.Kubelets)
	for slot, s := range h.Workloads {
		fmt.Fprintf(&b, "%s: %+v\n", workloadName(slot), s)
	}
	return b.String()
}

// operation is one event. The meaning of its numbers depends on Do; an operation that is not possible at its time
// does nothing.
type operation struct {
	Do         string        `json:"do"`
	A          int           `json:"a,omitempty"`
	B          int           `json:"b,omitempty"`
	C          int           `json:"c,omitempty"`
	Annotation string        `json:"annotation,omitempty"`
	Text       string        `json:"text,omitempty"`
	Content    content       `json:"content,omitzero"`
	Wait       time.Duration `json:"wait,omitempty"`
}

func (o operation) String() string {
	s := fmt.Sprintf("%s(%d, %d, %d)", o.Do, o.A, o.B, o.C)
	if o.Annotation != "" || o.Text != "" {
		s += fmt.Sprintf(" %s=%q", o.Annotation, o.Text)
	}
	if o.Content != (content{}) {
		s += " " + o.Content.String()
	}
	if o.Wait > 0 {
		s += " " + o.Wait.String()
	}
	return s
}

// maker creates random operations.
type maker struct {
	*rand.Rand
	h *history
}

func (m maker) source() int   { return m.IntN(firstSources) }
func (m maker) workload() int { return m.IntN(len(m.h.Workloads)) }
func (m maker) server() int   { return m.IntN(m.h.Servers) }

func (m maker) value() value { return value(m.IntN(1 + valueCount)) }

func (m maker) content() (c content) {
	for c == (content{}) {
		for k := range c {
			c[k] = m.value()
		}
	}
	return c
}

// action is a kind of operation.
type action struct {
	weight int
	make   func(maker) operation
	run    func(*simulation, operation) bool
}

// pick returns one of some values.
func pick[T any](m maker, values ...T) T { return values[m.IntN(len(values))] }

// toggles are the values that a policy annotation gets; empty: removed. Values outside the vocabulary make it
// invalid.
var toggles = map[string][]string{
	excludeAnnotation:     {"configmap/c0", "secret/*", "configmap/c1,secret/s0", "", "", "c0"},
	kindsAnnotation:       {"configmap", "secret", "", "pods"},
	liveAnnotation:        {"true", "", "false", "yes"},
	sourcesAnnotation:     {"configmap/c*", "secret/s1", "secret/s*", "configmap/c1", "configmap/c0-other", "", ""},
	settleAnnotation:      {"0", "500ms", "5s", "", "soon"},
	minIntervalAnnotation: {"0", "10s", "1m", "", "often"},
	strategyAnnotation:    {"recreate", "recreate", "annotation", "", "delete"},
}

var toggled = []string{excludeAnnotation, kindsAnnotation, liveAnnotation, sourcesAnnotation, settleAnnotation, minIntervalAnnotation, strategyAnnotation}

func none(maker) operation { return operation{} }

func aWorkload(m maker) operation { return operation{A: m.workload(), B: m.IntN(2), C: m.IntN(12)} }

func aServer(m maker) operation { return operation{A: m.server(), B: m.IntN(2)} }

func onWorkload(f func(w *world, d *workload, o operation) bool) func(*simulation, operation) bool {
	return func(s *simulation, o operation) bool {
		d := s.world.workloads[o.A]
		return d != nil && f(s.world, d, o)
	}
}

// actions are all operations.
var actions = map[string]action{
	"calm": {3, none, func(s *simulation, _ operation) bool {
		s.calm()
		s.world.oracle.check(true)
		return true
	}},
	"wait": {14, func(m maker) operation {
		return operation{Wait: pick(m, 10*time.Millisecond, 300*time.Millisecond, time.Second, 1100*time.Millisecond, 3*time.Second, 20*time.Second)}
	}, func(s *simulation, o operation) bool { s.sleep(o.Wait); return true }},
	// The displayed state is checked while faults last.
	"look": {2, none, func(s *simulation, _ operation) bool {
		s.sleep(time.Minute)
		s.world.oracle.check(false)
		return true
	}},

	"create source": {5, func(m maker) operation { return operation{A: m.source(), Content: m.content()} },
		func(s *simulation, o operation) bool { return s.world.createSource(o.A, o.Content) }},
	"delete source": {4, func(m maker) operation { return operation{A: m.source()} },
		func(s *simulation, o operation) bool { return s.world.deleteSource(o.A) }},
	"recreate source": {4, func(m maker) operation {
		o := operation{A: m.source(), B: m.IntN(2)}
		if o.B == 1 {
			o.Content = m.content()
		}
		return o
	}, func(s *simulation, o operation) bool {
		c := s.world.sources[o.A].content
		if o.B == 1 {
			c = o.Content
		}
		return s.world.deleteSource(o.A) && s.world.createSource(o.A, c)
	}},
	"set key": {14, func(m maker) operation {
		return operation{A: m.source(), B: m.IntN(keyCount), C: max(1, int(m.value()))}
	}, func(s *simulation, o operation) bool {
		c := s.world.sources[o.A].content
		c[o.B] = value(o.C)
		return s.world.setContent(o.A, c, false)
	}},
	// A change that is reverted at once, or nearly.
	"there and back": {3, func(m maker) operation {
		return operation{A: m.source(), B: m.IntN(keyCount), C: max(1, int(m.value())), Wait: pick(m, 0, 200*time.Millisecond, 900*time.Millisecond)}
	}, func(s *simulation, o operation) bool {
		before := s.world.sources[o.A].content
		c := before
		c[o.B] = value(o.C)
		if !s.world.setContent(o.A, c, false) {
			return false
		}
		s.sleep(o.Wait)
		return s.world.setContent(o.A, before, false)
	}},
	"remove key": {4, func(m maker) operation { return operation{A: m.source(), B: m.IntN(keyCount), C: m.IntN(2)} },
		func(s *simulation, o operation) bool {
			c := s.world.sources[o.A].content
			c[o.B] = 0
			return s.world.setContent(o.A, c, o.C == 1)
		}},
	"set content": {4, func(m maker) operation { return operation{A: m.source(), Content: m.content()} },
		func(s *simulation, o operation) bool { return s.world.setContent(o.A, o.Content, false) }},
	"edit source": {4, func(m maker) operation { return operation{A: m.source(), B: m.IntN(2)} },
		func(s *simulation, o operation) bool { return s.world.editSource(o.A, o.B == 1) }},
	// A source comes back as it was before it was deleted.
	"return source": {0, none, func(s *simulation, o operation) bool { return s.world.createSource(o.A, s.world.sources[o.A].gone) }},
	// The content of the SecretProviderClass changes in its store, and the driver of a node looks for that.
	"rotate":         {0, none, func(s *simulation, _ operation) bool { s.world.stored++; return true }},
	"poll":           {0, none, func(s *simulation, o operation) bool { return s.world.poll(o.A, o.B == 0) }},
	"patch key":      {0, none, func(s *simulation, o operation) bool { return s.world.patchKey(o.A, o.B, value(o.C)) }},
	"make immutable": {0, none, func(s *simulation, o operation) bool { return s.world.makeImmutable(o.A) }},
	"fail pod":       {0, none, onWorkload(func(w *world, d *workload, o operation) bool { return w.failPod(d, o.C) })},
	// Without a weight: addStuck adds them.
	"break pod":    {0, none, onWorkload(func(w *world, d *workload, o operation) bool { return w.breakPod(d, o.C) })},
	"free rollout": {0, none, func(s *simulation, o operation) bool { return s.free(o.A) }},
	// Without a weight: addWaves adds them.
	"put policy":    {0, none, func(s *simulation, o operation) bool { return s.world.putPolicy(o.A, o.Text) }},
	"delete policy": {0, none, func(s *simulation, o operation) bool { return s.world.deletePolicy(o.A) }},
	"decide":        {0, none, (*simulation).decideContent},
	"mark source": {1, func(m maker) operation { return operation{A: m.source(), B: m.IntN(2)} },
		func(s *simulation, o operation) bool { return s.world.markSource(o.A, o.B == 1) }},

	"create workload": {3, aWorkload, func(s *simulation, o operation) bool { return s.world.createWorkload(o.A) }},
	"delete workload": {1, aWorkload, func(s *simulation, o operation) bool { return s.world.deleteWorkload(o.A) }},
	"recreate workload": {1, aWorkload, func(s *simulation, o operation) bool {
		return s.world.deleteWorkload(o.A) && s.world.createWorkload(o.A)
	}},
	"terminate workload": {1, aWorkload, func(s *simulation, o operation) bool { return s.world.terminate(o.A) }},
	"set image": {6, func(m maker) operation {
		return operation{A: m.workload(), B: m.IntN(2), C: pick(m, 0, 1, 2, 2, 1, crashing)}
	}, func(s *simulation, o operation) bool {
		return s.world.setTemplate(o.A, s.world.seeds[o.A].Variants[o.B], o.C)
	}},
	"rewrite": {4, func(m maker) operation {
		return operation{A: m.workload(), B: 1 + m.IntN(3), C: pick(m, -1, -1, 0, 1, 2)}
	}, func(s *simulation, o operation) bool { return s.world.rewrite(o.A, o.B&1 != 0, o.B&2 != 0, o.C) }},
	"edit workload": {3, aWorkload, func(s *simulation, o operation) bool { return s.world.editWorkload(o.A, o.B == 1) }},
	"undo":          {2, aWorkload, func(s *simulation, o operation) bool { return s.world.undo(o.A) }},
	"restart":       {2, aWorkload, func(s *simulation, o operation) bool { return s.world.restart(o.A) }},
	"pause":         {2, aWorkload, func(s *simulation, o operation) bool { return s.world.pause(o.A, true) }},
	"resume":        {3, aWorkload, func(s *simulation, o operation) bool { return s.world.pause(o.A, false) }},
	"scale": {3, func(m maker) operation { return operation{A: m.workload(), B: pick(m, 0, 1, 2, 3), C: m.IntN(2)} },
		func(s *simulation, o operation) bool { return s.world.scale(o.A, o.B, o.C == 1) }},
	"hold pods": {1, func(m maker) operation { return operation{A: m.workload(), B: m.IntN(2), C: m.IntN(3)} },
		func(s *simulation, o operation) bool { return s.world.hold(o.A, o.B, o.C == 2) }},
	"evict pod":         {3, aWorkload, func(s *simulation, o operation) bool { return s.world.drainPod(o.A, o.C, false) }},
	"lose node":         {1, aWorkload, func(s *simulation, o operation) bool { return s.world.drainPod(o.A, o.C, true) }},
	"restart container": {3, aWorkload, func(s *simulation, o operation) bool { return s.world.restartContainer(o.A, o.C, o.Wait) }},
	// Without a weight: addKubelets adds them.
	"forget":           {0, none, onWorkload(func(w *world, d *workload, o operation) bool { return w.forget(d, o.C) })},
	"release template": {0, none, (*simulation).release},
	"opt in at rest":   {0, none, (*simulation).optIn},
	// How the pods of a workload restart in place. Without a weight: addInPlace adds them.
	"restarter": {0, none, onWorkload(func(_ *world, d *workload, o operation) bool {
		d.restarter = restarting{o.Wait, time.Duration(o.C) * time.Second, o.B == 1}
		return true
	})},
	"lose restart": {0, none, func(s *simulation, o operation) bool { return s.world.loseRestart(o.A, o.C) }},
	"unstick":      {0, none, onWorkload(func(w *world, d *workload, _ operation) bool { return w.unstick(d) })},
	// How the agents of a workload behave. Without a weight: addAgents adds it.
	"agents": {0, none, onWorkload(func(w *world, d *workload, o operation) bool {
		return w.setAgents(d, agents{delay: o.Wait, late: time.Duration(o.C) * time.Second, fails: o.B == 1, silent: o.B == 2})
	})},
	// An autoscaler changes the replicas again and again. Without a weight: addWide adds it.
	"autoscale": {0, none, func(s *simulation, o operation) bool {
		for range o.B {
			o.C = o.C*5 + 3
			s.world.scale(o.A, 1+o.C/4%4, false)
			s.sleep(o.Wait)
		}
		return true
	}},
	"start run": {2, aWorkload, onWorkload(func(w *world, d *workload, _ operation) bool { return w.startRun(d) })},
	"end runs":  {1, aWorkload, onWorkload(func(w *world, d *workload, _ operation) bool { return w.endRuns(d) })},

	"protect": {1, aWorkload, onWorkload(func(_ *world, d *workload, o operation) bool { d.pdb = o.B == 1; return true })},
	"refuse":  {2, aWorkload, onWorkload(func(_ *world, d *workload, o operation) bool { d.refused = o.B == 1; return true })},

	"reload": {2, aWorkload, func(s *simulation, o operation) bool {
		mode := v1alpha1.ReloadAlways
		if o.B == 1 {
			mode = v1alpha1.ReloadIfStale
		}
		return s.reload(s.world.servers[o.C%len(s.world.servers)], o.A, mode)
	}},

	"opt": {3, func(m maker) operation {
		return operation{A: m.workload(), Annotation: reloadAnnotation, Text: pick(m, "auto", "auto", "off", "", "listed", "matched", "sometimes")}
	}, func(s *simulation, o operation) bool { return s.world.annotate(o.A, o.Annotation, o.Text) }},
	"opt namespace": {1, func(m maker) operation {
		return operation{Annotation: reloadAnnotation, Text: pick(m, "auto", "auto", "off", "")}
	}, func(s *simulation, o operation) bool { return s.world.annotateNamespace(o.Annotation, o.Text) }},
	"toggle": {5, func(m maker) operation {
		o := operation{A: m.workload(), Annotation: pick(m, toggled...)}
		o.Text = pick(m, toggles[o.Annotation]...)
		return o
	}, func(s *simulation, o operation) bool { return s.world.annotate(o.A, o.Annotation, o.Text) }},
	"toggle namespace": {1, func(m maker) operation {
		o := operation{Annotation: pick(m, toggled...)}
		o.Text = pick(m, toggles[o.Annotation]...)
		return o
	}, func(s *simulation, o operation) bool { return s.world.annotateNamespace(o.Annotation, o.Text) }},
	"terminate namespace": {1, func(m maker) operation { return operation{B: m.IntN(2)} }, func(s *simulation, o operation) bool {
		if o.B == 0 {
			return s.world.terminateNamespace()
		}
		return s.world.endNamespace()
	}},

	"replace key": {1, func(m maker) operation { return operation{B: m.IntN(3)} },
		func(s *simulation, o operation) bool { return s.world.replaceKey(o.B == 2) }},

	"hold": {5, func(m maker) operation { return operation{A: m.server(), B: m.IntN(int(podStatuses))} },
		func(s *simulation, o operation) bool { s.world.servers[o.A].streams[o.B].held = true; return true }},
	"release": {5, func(m maker) operation { return operation{A: m.server(), B: m.IntN(int(podStatuses))} },
		func(s *simulation, o operation) bool { s.world.servers[o.A].streams[o.B].held = false; return true }},
	"relist": {2, func(m maker) operation { return operation{A: m.server(), B: m.IntN(int(podStatuses))} },
		func(s *simulation, o operation) bool { s.world.servers[o.A].streams[o.B].relist = true; return true }},
	"impair": {3, func(m maker) operation { return operation{A: m.server(), B: m.IntN(3)} },
		func(s *simulation, o operation) bool {
			server := s.world.servers[o.A]
			switch o.B {
			case 0:
				server.asleep = true
				server.gate.close()
			case 1:
				server.deaf = true
			default:
				server.mute = true
			}
			return true
		}},
	"mend": {3, aServer, func(s *simulation, o operation) bool {
		server := s.world.servers[o.A]
		server.asleep, server.deaf, server.mute = false, false, false
		return true
	}},
	"fault": {4, func(m maker) operation {
		return operation{A: m.workload(), B: 1 + m.IntN(int(faultCount)-1), C: 1 + m.IntN(3)}
	}, func(s *simulation, o operation) bool {
		for range o.C {
			s.faults[o.A] = append(s.faults[o.A], fault(o.B))
		}
		return true
	}},
	"kill":   {2, aServer, func(s *simulation, o operation) bool { return s.kill(s.world.servers[o.A], o.B == 1) }},
	"birth":  {3, aServer, func(s *simulation, o operation) bool { return s.birth(s.world.servers[o.A]) }},
	"lead":   {3, aServer, func(s *simulation, o operation) bool { return s.lead(s.world.servers[o.A]) }},
	"resign": {2, aServer, func(s *simulation, o operation) bool { return s.resign(s.world.servers[o.A], o.B == 1) }},
	// Another server takes over.
	"hand over": {2, aServer, func(s *simulation, o operation) bool {
		for _, server := range s.world.servers {
			if server.id != o.A {
				s.resign(server, o.B == 1)
			}
		}
		return s.lead(s.world.servers[o.A])
	}},
	// A status that changes all the time, as that of a busy workload.
	"busy": {1, func(m maker) operation {
		return operation{A: m.workload(), B: 1 + m.IntN(150), Wait: 100 * time.Millisecond}
	}, func(s *simulation, o operation) bool {
		for range o.B {
			if !s.world.editWorkload(o.A, false) || s.world.oracle.violation != "" {
				return false
			}
			s.sleep(o.Wait)
		}
		return true
	}},
}
