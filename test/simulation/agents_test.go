// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// Config agents in pods apply what changes, and report it, as docs/agent.md describes it.

const (
	agentLabel      = "configdep.io/agent"
	statusOfAgent   = "configdep.io/agent-status"
	strategyOfAgent = "agent"
)

// agents is how the agents in the pods of a workload behave.
type agents struct {
	sources, required sourceSet
	delay             time.Duration // until an agent applies what has changed
	late              time.Duration // until it reports that
	fails             bool          // it cannot apply what changes, and says so
	silent            bool          // it reports nothing
}

// agent is the agent in a pod.
type agent struct {
	sources sourceSet
	due     time.Time // when it acts next
	// applied are the sources in the state in which it has applied them, and has that it has applied any.
	applied [sourceCount]source
	has     bool
	// said is what it has applied and not reported, or its last report; saying: it is yet to be reported.
	said   agentReport
	saying bool
	told   *agentReport // its last report; nil: none
}

// agentReport is what an agent says.
type agentReport struct {
	state   string
	sources [sourceCount]source
	has     bool
}

var kindNames = map[streamID]string{configMaps: "ConfigMap", secrets: "Secret", podStatuses: "SecretProviderClass"}

// text returns the annotation of a report.
func (r *agentReport) text(of sourceSet) string {
	type entry struct {
		Kind            string `json:"kind"`
		Namespace       string `json:"namespace"`
		Name            string `json:"name"`
		UID             string `json:"uid,omitempty"`
		ResourceVersion string `json:"resourceVersion,omitempty"`
	}
	out := struct {
		State   string  `json:"state"`
		Message string  `json:"message,omitempty"`
		Sources []entry `json:"sources,omitempty"`
	}{State: r.state}
	if r.state == "Failed" {
		out.Message = "check: exit code 1"
	}
	for s := range r.sources {
		if !of.has(s) || !r.has {
			continue
		}
		e := entry{Kind: kindNames[sourceStream(s)], Namespace: namespace, Name: sourceNames[s]}
		if from := &r.sources[s]; from.present {
			e.UID, e.ResourceVersion = fmt.Sprint("source-", from.uid), fmt.Sprint(from.version)
		}
		out.Sources = append(out.Sources, e)
	}
	data, err := json.Marshal(out)
	if err != nil {
		panic(err)
	}
	return string(data)
}

// born starts the agent of a pod that has been created.
func (w *world) born(d *workload, p *pod) {
	if p.agent.sources = d.agents.sources; d.agents.sources != 0 {
		p.agent.due = time.Now().Add(max(moment, d.agents.delay))
	}
}

// agentsSee lets agents see a source that was written.
func (w *world) agentsSee(slot int) {
	for _, d := range w.workloads {
		if d == nil || !d.agents.sources.has(slot) {
			continue
		}
		for _, p := range d.pods {
			if p.agent.due.IsZero() && !p.terminating {
				p.agent.due = time.Now().Add(max(moment, d.agents.delay))
			}
		}
	}
}

// setAgents changes how agents behave.
func (w *world) setAgents(d *workload, to agents) bool {
	if d.agents.sources == 0 {
		return false
	}
	to.sources, to.required = d.agents.sources, d.agents.required
	d.agents = to
	for _, p := range d.pods {
		if !p.terminating {
			p.agent.due = time.Now().Add(max(moment, to.delay))
		}
	}
	return true
}

// actAgent lets the agent of a pod apply the current content, or report what it has applied.
func (w *world) actAgent(d *workload, p *pod) {
	a := &p.agent
	a.due = time.Time{}
	if w.workloads[d.slot] != d || p.terminating || !slices.Contains(d.pods, p) {
		return
	}
	if a.saying {
		a.saying = false
		if said := a.said; !d.agents.silent && (a.told == nil || *a.told != said) {
			a.told = &said
			w.oracle.tally["reports of agents"]++
			w.logf("    %s: the agent of pod %d reports %s", workloadName(d.slot), p.uid, said.text(d.agents.sources))
			w.tellPod(d, p, false)
		}
	}
	state := "Applied"
	for s := range w.sources {
		if d.agents.required.has(s) && !w.sources[s].present {
			state = "Incomplete"
		}
	}
	switch {
	case state != "Applied":
	case d.agents.fails:
		state = "Failed"
	default:
		a.applied, a.has = w.sources, true
		for s := range a.applied {
			if !d.agents.sources.has(s) {
				a.applied[s] = source{}
			}
		}
	}
	if next := (agentReport{state, a.applied, a.has}); next != a.said {
		a.said, a.saying = next, true
		a.due = time.Now().Add(max(moment, d.agents.late))
	}
}

// addAgents gives the workloads of a few histories agents that apply late, fail, or say nothing.
func (h *history) addAgents(begin int) {
	m := maker{rand.New(rand.NewPCG(h.Seed, 4)), h}
	if m.IntN(8) > 0 || slices.ContainsFunc(h.Workloads, func(s seed) bool { return s.MaxUnavailable != 0 || s.Kind == "Job" || s.Kind == "CronJob" }) {
		return
	}
	for i := range h.Workloads {
		s := &h.Workloads[i]
		s.Agents = sourceSet(1 + m.IntN(1<<firstSources-1))
		if m.IntN(3) == 0 {
			s.Required = s.Agents & sourceSet(m.IntN(1<<firstSources))
		}
		if m.IntN(4) > 0 {
			s.Variants = [2]int{readsNothing, readsNothing}
		}
		s.Annotations[strategyAnnotation] = strategyOfAgent
		if s.Annotations[reloadAnnotation] == "" {
			s.Annotations[reloadAnnotation] = "auto"
		}
	}
	begin = min(begin, len(h.Operations))
	insert := func(at int, operations ...operation) int {
		h.Operations = slices.Insert(h.Operations, at, operations...)
		return at + len(operations)
	}
	for range 3 + m.IntN(4) {
		slot := m.workload()
		at := begin + m.IntN(len(h.Operations)-begin+1)
		at = insert(at, operation{Do: "agents", A: slot, B: pick(m, 0, 0, 0, 1, 2), C: pick(m, 0, 0, 3, 30), Wait: pick(m, 0, time.Second, 10*time.Second, 5*time.Minute)},
			operation{Do: pick(m, "hold", "release", "relist"), A: m.server(), B: pick(m, int(pods), int(configMaps), int(secrets))},
			operation{Do: "set content", A: m.source(), Content: m.content()}, operation{Do: "set content", A: m.source(), Content: m.content()})
		at = insert(at, operation{Do: "wait", Wait: pick(m, time.Second, 5*time.Second, 40*time.Second)})
		for range m.IntN(4) {
			at = insert(at, pick(m,
				operation{Do: "look"}, operation{Do: "calm"}, operation{Do: "delete source", A: m.source()}, operation{Do: "edit source", A: m.source()},
				operation{Do: "create source", A: m.source(), Content: m.content()}, operation{Do: "scale", A: slot, B: m.IntN(4), C: m.IntN(2)},
				operation{Do: "evict pod", A: slot, C: m.IntN(4)}, operation{Do: "lose node", A: slot, C: m.IntN(4)},
				operation{Do: "hand over", A: m.server(), B: m.IntN(2)}, operation{Do: "kill", A: m.server()}, operation{Do: "birth", A: m.server()},
				operation{Do: "recreate source", A: m.source(), B: 1, Content: m.content()},
				operation{Do: "replace key", B: m.IntN(3)}, operation{Do: "recreate workload", A: slot}, operation{Do: "reload", A: slot, C: m.IntN(12)},
				operation{Do: "toggle", A: slot, Annotation: strategyAnnotation, Text: pick(m, "agent", "agent", "annotation", "recreate")}))
		}
	}
}
