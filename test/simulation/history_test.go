package simulation

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// history is a world at its beginning and what happens to it.
type history struct {
	seed        uint64
	servers     int
	defaultMode string
	seeds       []seed
	batches     bool
	operations  []operation
}

func (h *history) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d servers, reload %q by default, batches %v\n", h.servers, h.defaultMode, h.batches)
	for slot, s := range h.seeds {
		fmt.Fprintf(&b, "%s: %s, variants %v, %v\n", workloadName(slot), s.kind, s.variants, s.annotations)
	}
	return b.String()
}

// operation is one thing that happens. What its numbers mean depends on what it does; one
// that is not possible when its turn comes does nothing.
type operation struct {
	do         string
	a, b, c    int
	annotation string
	text       string
	content    content
	wait       time.Duration
}

func (o operation) String() string {
	s := fmt.Sprintf("%s(%d, %d, %d)", o.do, o.a, o.b, o.c)
	if o.annotation != "" {
		s += fmt.Sprintf(" %s=%q", o.annotation, o.text)
	}
	if o.content != (content{}) {
		s += " " + o.content.String()
	}
	if o.wait > 0 {
		s += " " + o.wait.String()
	}
	return s
}

// maker makes an operation at random.
type maker struct {
	*rand.Rand
	h *history
}

func (m maker) source() int   { return m.IntN(sourceCount) }
func (m maker) workload() int { return m.IntN(len(m.h.seeds)) }
func (m maker) server() int   { return m.IntN(m.h.servers) }

func (m maker) content() (c content) {
	for c == (content{}) {
		for k := range c {
			c[k] = value(m.IntN(valueCount + 1))
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

// toggles are the values that a policy annotation gets; empty: it is removed, and what is
// not in the vocabulary spoils it.
var toggles = map[string][]string{
	excludeAnnotation: {"configmap/c0", "secret/*", "configmap/c1,secret/s0", "", "", "c0"},
	kindsAnnotation:   {"configmap", "secret", "", "pods"},
	liveAnnotation:    {"true", "", "false", "yes"},
	sourcesAnnotation: {"configmap/c*", "secret/s1", "secret/s?", "configmap/c1", "configmap/c0-other", "", ""},
	settleAnnotation:  {"0", "500ms", "5s", "", "soon"},
}

var toggled = []string{excludeAnnotation, kindsAnnotation, liveAnnotation, sourcesAnnotation, settleAnnotation}

// actions are all that can happen.
var actions = map[string]action{
	"calm": {3, func(maker) operation { return operation{} }, func(s *simulation, _ operation) bool {
		s.calm()
		s.world.oracle.checkCalm()
		return true
	}},
	"wait": {14, func(m maker) operation {
		return operation{wait: pick(m, 10*time.Millisecond, 300*time.Millisecond, time.Second, 1100*time.Millisecond, 3*time.Second, 20*time.Second)}
	}, func(s *simulation, o operation) bool { s.sleep(o.wait); return true }},

	"create source": {5, func(m maker) operation { return operation{a: m.source(), content: m.content()} },
		func(s *simulation, o operation) bool { return s.world.createSource(o.a, o.content) }},
	"delete source": {4, func(m maker) operation { return operation{a: m.source()} },
		func(s *simulation, o operation) bool { return s.world.deleteSource(o.a) }},
	"recreate source": {4, func(m maker) operation {
		o := operation{a: m.source(), b: m.IntN(2)}
		if o.b == 1 {
			o.content = m.content()
		}
		return o
	}, func(s *simulation, o operation) bool {
		c := s.world.sources[o.a].content
		if o.b == 1 {
			c = o.content
		}
		return s.world.deleteSource(o.a) && s.world.createSource(o.a, c)
	}},
	"set key": {16, func(m maker) operation {
		return operation{a: m.source(), b: m.IntN(keyCount), c: 1 + m.IntN(valueCount)}
	}, func(s *simulation, o operation) bool {
		c := s.world.sources[o.a].content
		c[o.b] = value(o.c)
		return s.world.setContent(o.a, c, false)
	}},
	"remove key": {4, func(m maker) operation { return operation{a: m.source(), b: m.IntN(keyCount), c: m.IntN(2)} },
		func(s *simulation, o operation) bool {
			c := s.world.sources[o.a].content
			c[o.b] = 0
			return s.world.setContent(o.a, c, o.c == 1)
		}},
	"set content": {4, func(m maker) operation { return operation{a: m.source(), content: m.content()} },
		func(s *simulation, o operation) bool { return s.world.setContent(o.a, o.content, false) }},
	"edit source": {4, func(m maker) operation { return operation{a: m.source(), b: m.IntN(2)} },
		func(s *simulation, o operation) bool { return s.world.editSource(o.a, o.b == 1) }},
	"mark source": {1, func(m maker) operation { return operation{a: m.source(), b: m.IntN(2)} },
		func(s *simulation, o operation) bool { return s.world.markSource(o.a, o.b == 1) }},

	"create workload": {3, func(m maker) operation { return operation{a: m.workload()} },
		func(s *simulation, o operation) bool { return s.world.createWorkload(o.a) }},
	"delete workload": {1, func(m maker) operation { return operation{a: m.workload()} },
		func(s *simulation, o operation) bool { return s.world.deleteWorkload(o.a) }},
	"recreate workload": {1, func(m maker) operation { return operation{a: m.workload()} },
		func(s *simulation, o operation) bool {
			return s.world.deleteWorkload(o.a) && s.world.createWorkload(o.a)
		}},
	"set image": {6, func(m maker) operation {
		return operation{a: m.workload(), b: m.IntN(2), c: pick(m, 0, 1, 2, 2, 1, crashing)}
	},
		func(s *simulation, o operation) bool {
			return s.world.setTemplate(o.a, s.world.seeds[o.a].variants[o.b], o.c)
		}},
	"rewrite": {4, func(m maker) operation {
		return operation{a: m.workload(), b: 1 + m.IntN(3), c: pick(m, -1, -1, 0, 1, 2)}
	},
		func(s *simulation, o operation) bool { return s.world.rewrite(o.a, o.b&1 != 0, o.b&2 != 0, o.c) }},
	"edit workload": {3, func(m maker) operation { return operation{a: m.workload(), b: m.IntN(2)} },
		func(s *simulation, o operation) bool { return s.world.editWorkload(o.a, o.b == 1) }},
	"undo": {2, func(m maker) operation { return operation{a: m.workload()} },
		func(s *simulation, o operation) bool { return s.world.undo(o.a) }},
	"restart": {2, func(m maker) operation { return operation{a: m.workload()} },
		func(s *simulation, o operation) bool { return s.world.restart(o.a) }},
	"pause": {2, func(m maker) operation { return operation{a: m.workload()} },
		func(s *simulation, o operation) bool { return s.world.pause(o.a, true) }},
	"resume": {3, func(m maker) operation { return operation{a: m.workload()} },
		func(s *simulation, o operation) bool { return s.world.pause(o.a, false) }},

	"opt": {3, func(m maker) operation {
		return operation{a: m.workload(), annotation: reloadAnnotation, text: pick(m, "auto", "auto", "off", "", "listed", "matched", "sometimes")}
	}, func(s *simulation, o operation) bool { return s.world.annotate(o.a, o.annotation, o.text) }},
	"opt namespace": {1, func(m maker) operation {
		return operation{annotation: reloadAnnotation, text: pick(m, "auto", "auto", "off", "")}
	}, func(s *simulation, o operation) bool { return s.world.annotateNamespace(o.annotation, o.text) }},
	"toggle": {4, func(m maker) operation {
		o := operation{a: m.workload(), annotation: pick(m, toggled...)}
		o.text = pick(m, toggles[o.annotation]...)
		return o
	}, func(s *simulation, o operation) bool { return s.world.annotate(o.a, o.annotation, o.text) }},
	"toggle namespace": {1, func(m maker) operation {
		o := operation{annotation: pick(m, toggled...)}
		o.text = pick(m, toggles[o.annotation]...)
		return o
	}, func(s *simulation, o operation) bool { return s.world.annotateNamespace(o.annotation, o.text) }},

	"replace key": {1, func(maker) operation { return operation{} },
		func(s *simulation, _ operation) bool { return s.world.replaceKey() }},

	"hold": {5, func(m maker) operation { return operation{a: m.server(), b: m.IntN(int(streamCount))} },
		func(s *simulation, o operation) bool { s.world.servers[o.a].streams[o.b].held = true; return true }},
	"release": {5, func(m maker) operation { return operation{a: m.server(), b: m.IntN(int(streamCount))} },
		func(s *simulation, o operation) bool { s.world.servers[o.a].streams[o.b].held = false; return true }},
	"relist": {2, func(m maker) operation { return operation{a: m.server(), b: m.IntN(int(streamCount))} },
		func(s *simulation, o operation) bool { s.world.servers[o.a].streams[o.b].relist = true; return true }},
	"impair": {3, func(m maker) operation { return operation{a: m.server(), b: m.IntN(3)} },
		func(s *simulation, o operation) bool {
			server := s.world.servers[o.a]
			switch o.b {
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
	"mend": {3, func(m maker) operation { return operation{a: m.server()} },
		func(s *simulation, o operation) bool {
			server := s.world.servers[o.a]
			server.asleep, server.deaf, server.mute = false, false, false
			return true
		}},
	"fault": {4, func(m maker) operation {
		return operation{a: m.workload(), b: 1 + m.IntN(int(faultCount)-1), c: 1 + m.IntN(3)}
	},
		func(s *simulation, o operation) bool {
			for range o.c {
				s.faults[o.a] = append(s.faults[o.a], fault(o.b))
			}
			return true
		}},
	"kill": {2, func(m maker) operation { return operation{a: m.server(), b: m.IntN(2)} },
		func(s *simulation, o operation) bool { return s.kill(s.world.servers[o.a], o.b == 1) }},
	"birth": {3, func(m maker) operation { return operation{a: m.server()} },
		func(s *simulation, o operation) bool { return s.birth(s.world.servers[o.a]) }},
	"lead": {3, func(m maker) operation { return operation{a: m.server()} },
		func(s *simulation, o operation) bool { return s.lead(s.world.servers[o.a]) }},
	"resign": {2, func(m maker) operation { return operation{a: m.server(), b: m.IntN(2)} },
		func(s *simulation, o operation) bool { return s.resign(s.world.servers[o.a], o.b == 1) }},
	// Another server takes over.
	"hand over": {2, func(m maker) operation { return operation{a: m.server(), b: m.IntN(2)} },
		func(s *simulation, o operation) bool {
			for _, server := range s.world.servers {
				if server.id != o.a {
					s.resign(server, o.b == 1)
				}
			}
			return s.lead(s.world.servers[o.a])
		}},
}
