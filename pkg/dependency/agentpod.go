// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"cmp"
	"hash/maphash"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// AgentPod is what is kept of a pod with a config agent: what the agent says that it has applied.
type AgentPod struct {
	Namespace, Name string
	ResourceVersion string
	// Seen is when it was first read that the pod says this.
	Seen time.Time
	// Workload is the workload that the pod belongs to, and Owner is its UID; empty: that is not known.
	Workload WorkloadKey
	Owner    types.UID
	// Terminating: the pod is being deleted, so that what it has applied does not matter any longer.
	Terminating bool
	State       AgentState
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

// agentPods are the pods with agents, by name and by workload, and which workloads have applied a source.
type agentPods struct {
	byName     tree[agentPodName, *AgentPod]
	byWorkload tree[agentPodOf, *AgentPod]
	users      tree[agentUse, int] // how many pods of the workload
	// shared are the sources of all pods, by what sumOfAgentSources returns. Snapshots have none.
	shared map[uint64]*sharedSources
}

// sharedSources is what some pods have applied.
type sharedSources struct {
	sources []AgentSource
	pods    int
}

type agentPodName struct{ namespace, name string }

// agentPodOf orders pods by their workload, and then by name.
type agentPodOf struct {
	workload WorkloadKey
	pod      string
}

// agentUse says that agents of a workload apply a source; a workload without a name is before all others.
type agentUse struct {
	source   SourceKey
	workload WorkloadKey
}

func newAgentPods() agentPods {
	return agentPods{
		byName: newTree[agentPodName, *AgentPod](func(a, b *agentPodName) int {
			return cmp.Or(strings.Compare(a.namespace, b.namespace), strings.Compare(a.name, b.name))
		}),
		byWorkload: newTree[agentPodOf, *AgentPod](func(a, b *agentPodOf) int {
			return cmp.Or(compareWorkloads(&a.workload, &b.workload), strings.Compare(a.pod, b.pod))
		}),
		users: newTree[agentUse, int](func(a, b *agentUse) int {
			return cmp.Or(compareSources(&a.source, &b.source), compareWorkloads(&a.workload, &b.workload))
		}),
		shared: map[uint64]*sharedSources{},
	}
}

func (a agentPods) clone() agentPods {
	return agentPods{a.byName.clone(), a.byWorkload.clone(), a.users.clone(), nil}
}

// AgentPod returns a pod with an agent, or nil.
func (g *Graph) AgentPod(namespace, name string) *AgentPod {
	return g.agents.byName.get(agentPodName{namespace, name})
}

// HasAgentPods reports whether there is any pod with an agent.
func (g *Graph) HasAgentPods() bool { return g.agents.byName.len() > 0 }

// EachAgentPod calls f for every pod with an agent.
func (g *Graph) EachAgentPod(f func(*AgentPod)) { g.agents.byName.each(f) }

// AgentPods calls f for the pods with agents of a workload, in the order of their names, but not for those that are being deleted.
func (g *Graph) AgentPods(w *Workload, f func(*AgentPod)) {
	g.agents.byWorkload.from(agentPodOf{workload: w.WorkloadKey}, func(of *agentPodOf, p *AgentPod) bool {
		if of.workload != w.WorkloadKey {
			return false
		}
		if !p.Terminating && (p.Owner == "" || p.Owner == w.UID) {
			f(p)
		}
		return true
	})
}

// SetAgentPod adds a pod with an agent, or replaces the one of the same name. It returns the workloads for which that makes a difference.
func (g *Graph) SetAgentPod(p *AgentPod) []WorkloadKey {
	before := g.AgentPod(p.Namespace, p.Name)
	next := *p // the reflector may still have it
	next.Sources = g.agents.share(p.Sources)
	same := before != nil && before.says(&next)
	if same {
		next.Seen = before.Seen
	} else {
		g.countAgentUses(&next, 1)
	}
	if before != nil {
		g.deleteAgentPod(before, !same)
	}
	g.agents.byName.set(&agentPodName{p.Namespace, p.Name}, &next)
	g.agents.byWorkload.set(&agentPodOf{p.Workload, p.Name}, &next)
	switch {
	case same:
		return nil
	case before != nil && before.Workload != next.Workload:
		return []WorkloadKey{before.Workload, next.Workload}
	default:
		return []WorkloadKey{next.Workload}
	}
}

// DeleteAgentPod removes a pod, if it exists, and returns the workload for which that makes a difference.
func (g *Graph) DeleteAgentPod(namespace, name string) []WorkloadKey {
	p := g.AgentPod(namespace, name)
	if p == nil {
		return nil
	}
	g.deleteAgentPod(p, true)
	return []WorkloadKey{p.Workload}
}

func (g *Graph) deleteAgentPod(p *AgentPod, uses bool) {
	g.agents.byName.delete(agentPodName{p.Namespace, p.Name})
	g.agents.byWorkload.delete(agentPodOf{p.Workload, p.Name})
	g.agents.unshare(p.Sources)
	if uses {
		g.countAgentUses(p, -1)
	}
}

// says reports whether another state of a pod says the same. Nearly all writes of a pod are of its status.
func (p *AgentPod) says(other *AgentPod) bool {
	return p.Workload == other.Workload && p.Owner == other.Owner && p.Terminating == other.Terminating && p.State == other.State &&
		p.Message == other.Message && slices.Equal(p.Sources, other.Sources)
}

// share returns the sources of a pod as they are in memory already, if another pod has applied the same: so do most pods of a workload.
func (a *agentPods) share(sources []AgentSource) []AgentSource {
	if len(sources) == 0 {
		return nil
	}
	sum := sumOfAgentSources(sources)
	known := a.shared[sum]
	switch {
	case known == nil:
		a.shared[sum] = &sharedSources{sources, 1}
	case slices.Equal(known.sources, sources):
		known.pods++
		return known.sources
	}
	return sources
}

// unshare is the reverse of share.
func (a *agentPods) unshare(sources []AgentSource) {
	if len(sources) == 0 {
		return
	}
	sum := sumOfAgentSources(sources)
	if known := a.shared[sum]; known != nil && &known.sources[0] == &sources[0] {
		if known.pods--; known.pods == 0 {
			delete(a.shared, sum)
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

// countAgentUses counts what a pod has applied, or no longer has.
func (g *Graph) countAgentUses(p *AgentPod, by int) {
	for i := range p.Sources {
		use := agentUse{SourceKey{p.Sources[i].Kind, p.Namespace, p.Sources[i].Name}, p.Workload}
		if count := g.agents.users.get(use) + by; count > 0 {
			g.agents.users.set(&use, count)
		} else {
			g.agents.users.delete(use)
		}
	}
}

// eachAgentUser calls f for the workloads whose agents have applied a source, until f returns false.
func (g *Graph) eachAgentUser(key SourceKey, f func(WorkloadKey) bool) {
	if g.agents.users.len() == 0 {
		return
	}
	g.agents.users.from(agentUse{source: key}, func(use *agentUse, _ int) bool {
		return use.source == key && f(use.workload)
	})
}
