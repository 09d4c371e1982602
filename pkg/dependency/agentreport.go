// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"cmp"
	"hash/maphash"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// AgentReport is what the config agent of a pod says that it has applied.
type AgentReport struct {
	State AgentState
	// Message says why content is not applied.
	Message string
	// Sources are the sources of the namespace whose content is applied, in order, each once. They are shared, and must not be changed.
	Sources []AgentSource
}

// AgentState is what an agent says.
type AgentState string

// The states. Those that the agent reports have the same names there.
const (
	AgentSilent     AgentState = "" // it has not reported anything
	AgentApplied    AgentState = "Applied"
	AgentApplying   AgentState = "Applying"
	AgentIncomplete AgentState = "Incomplete"
	AgentFailed     AgentState = "Failed"
	AgentUnreadable AgentState = "Unreadable" // what it reports cannot be read; Message says why
)

// AgentSource is a source, in the state in which an agent has applied it. One that did not exist has no version.
type AgentSource struct {
	Kind    SourceKind
	Name    string
	UID     types.UID
	Version uint64
}

// Compare compares the place of a source in order with the place of one of a kind and name.
func (s *AgentSource) Compare(kind SourceKind, name string) int {
	return cmp.Or(strings.Compare(string(s.Kind), string(kind)), strings.Compare(s.Name, name))
}

// SortAgentSources returns sources in order, each once, in the first state that is given.
func SortAgentSources(sources []AgentSource) []AgentSource {
	slices.SortStableFunc(sources, func(a, b AgentSource) int { return a.Compare(b.Kind, b.Name) })
	return slices.CompactFunc(sources, func(a, b AgentSource) bool { return a.Compare(b.Kind, b.Name) == 0 })
}

// HasAgents reports whether any pod has an agent.
func (g *Graph) HasAgents() bool { return g.pods.agents > 0 }

// sharedSources is what some pods have applied.
type sharedSources struct {
	sources []AgentSource
	pods    int
}

// agentUse says that agents of a workload apply a source; a workload without a name is before all others.
type agentUse struct {
	source   SourceKey
	workload WorkloadKey
}

// says reports whether another report says the same. Nearly all writes of a pod are of its status.
func (r *AgentReport) says(other *AgentReport) bool {
	if r == nil || other == nil {
		return r == other
	}
	return r.State == other.State && r.Message == other.Message && slices.Equal(r.Sources, other.Sources)
}

// shareAgent gives the next state of a pod the sources of its report as they are in memory already, if another pod has applied the same: so do
// most pods of a workload.
func (p *pods) shareAgent(next *Pod) {
	if next.Agent == nil {
		return
	}
	report := *next.Agent
	if report.Sources = nil; len(next.Agent.Sources) > 0 {
		report.Sources = next.Agent.Sources
		sum := sumOfAgentSources(report.Sources)
		known := p.shared[sum]
		switch {
		case known == nil:
			p.shared[sum] = &sharedSources{report.Sources, 1}
		case slices.Equal(known.sources, report.Sources):
			known.pods++
			report.Sources = known.sources
		}
	}
	next.Agent = &report
}

// unshare is the reverse of shareAgent, for a state of a pod that is gone.
func (p *pods) unshare(report *AgentReport) {
	if report == nil || len(report.Sources) == 0 {
		return
	}
	sum := sumOfAgentSources(report.Sources)
	if known := p.shared[sum]; known != nil && &known.sources[0] == &report.Sources[0] {
		if known.pods--; known.pods == 0 {
			delete(p.shared, sum)
		}
	}
}

func sumOfAgentSources(sources []AgentSource) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	for i := range sources {
		maphash.WriteComparable(&h, sources[i])
	}
	return h.Sum64()
}

// replaceAgent notes that a pod has another report. Either state of the pod may be nil.
func (g *Graph) replaceAgent(before, now *Pod) {
	if before != nil && before.Agent != nil {
		g.pods.agents--
		g.pods.unshare(before.Agent)
	}
	if now != nil && now.Agent != nil {
		g.pods.agents++
	}
	if before != nil && now != nil && slices.Equal(before.workloads(), now.workloads()) && before.Agent.says(now.Agent) {
		return
	}
	g.countAgentUses(now, 1)
	g.countAgentUses(before, -1)
}

// countAgentUses counts what a pod has applied, or no longer has.
func (g *Graph) countAgentUses(p *Pod, by int) {
	if p == nil || p.Agent == nil {
		return
	}
	workloads := p.workloads()
	for i := range p.Agent.Sources {
		source := SourceKey{p.Agent.Sources[i].Kind, p.Namespace, p.Agent.Sources[i].Name}
		for _, workload := range workloads {
			use := agentUse{source, workload}
			if count := g.pods.users.get(use) + by; count > 0 {
				g.pods.users.set(&use, count)
			} else {
				g.pods.users.delete(use)
			}
		}
	}
}

// eachAgentUser calls f for the workloads whose agents have applied a source, until f returns false.
func (g *Graph) eachAgentUser(key SourceKey, f func(WorkloadKey) bool) {
	if g.pods.users.len() == 0 {
		return
	}
	g.pods.users.from(agentUse{source: key}, func(use *agentUse, _ int) bool {
		return use.source == key && f(g.Shown(use.workload))
	})
}
