// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/configdep/configdep/pkg/agent/status"
	"github.com/configdep/configdep/pkg/dependency"
)

// Agent restarts nothing: config agents in the pods apply what changes, and report it. On request, the workload is restarted as if it
// asked for no strategy.
var Agent Strategy = agent{}

type agent struct{ annotate }

// Name implements Strategy.
func (agent) Name() string { return "agent" }

// MarksTemplate implements Strategy: no change of content is a rollout.
func (agent) MarksTemplate() bool { return false }

// Agents is what the config agents in the pods of a workload say.
type Agents struct {
	// Sources are the sources of the namespace that they have applied, in order, each once; not more than dependency.MaxSources.
	Sources []AgentSource
	// pods is how many pods have an agent, and applied how many of these have applied the current content.
	pods, applied int
	// The others, by their names.
	behind, silent, incomplete, failed []string
	// message is that of the first that is incomplete, or failed.
	incompleteMessage, failedMessage string
}

// AgentSource is a source that agents have applied.
type AgentSource struct {
	Kind dependency.SourceKind
	Name string
	dependency.Resolution
}

// completeAgents evaluates what the agents of the pods say.
func (e *Evaluation) completeAgents() {
	if !e.graph.HasAgentPods() { // as in most clusters
		return
	}
	a := &e.Agents
	compared := 0
	results := map[*dependency.AgentSource]bool{} // of hasCurrent, by the first of the sources, which pods share that have applied the same
	e.graph.AgentPods(e.Workload, func(p *dependency.AgentPod) {
		a.pods++
		current := true
		if len(p.Sources) > 0 {
			var found bool
			if current, found = results[&p.Sources[0]]; !found && compared < maxAgentSources {
				current = e.hasCurrent(p.Sources)
				results[&p.Sources[0]], compared = current, compared+len(p.Sources)
				a.add(p.Sources)
			}
		}
		switch p.State {
		case dependency.AgentApplied:
			if current {
				a.applied++
			} else {
				a.behind = append(a.behind, p.Name)
			}
		case dependency.AgentApplying:
			a.behind = append(a.behind, p.Name)
		case dependency.AgentIncomplete:
			if len(a.incomplete) == 0 {
				a.incompleteMessage = p.Message
			}
			a.incomplete = append(a.incomplete, p.Name)
		case dependency.AgentFailed, dependency.AgentUnreadable:
			if len(a.failed) == 0 {
				a.failedMessage = p.Message
			}
			a.failed = append(a.failed, p.Name)
		case dependency.AgentSilent:
			a.silent = append(a.silent, p.Name)
		}
	})
	for i := range a.Sources {
		s := &a.Sources[i]
		s.Resolution = e.graph.Resolve(e.Workload.Namespace, &dependency.Reference{Kind: s.Kind, Name: s.Name, Uses: byAgent})
	}
}

// maxAgentSources limits the sources that are compared, and listed, for one workload. Its pods mostly have applied the same; of more that
// have not, it is not known that they are up to date.
const maxAgentSources = 50_000

// byAgent is how agents use a source: pods start without it.
var byAgent = []dependency.Use{{Type: dependency.ByAgent, Optional: true}}

// add adds sources that are in order.
func (a *Agents) add(sources []dependency.AgentSource) {
	for i := range sources {
		s := AgentSource{Kind: sources[i].Kind, Name: sources[i].Name}
		at, found := slices.BinarySearchFunc(a.Sources, s, compareAgentSources)
		if !found && len(a.Sources) < dependency.MaxSources {
			a.Sources = slices.Insert(a.Sources, at, s)
		}
	}
}

// hasCurrent reports whether sources have been applied in their current state, as far as that is read.
func (e *Evaluation) hasCurrent(sources []dependency.AgentSource) bool {
	return !slices.ContainsFunc(sources, func(s dependency.AgentSource) bool {
		key := dependency.SourceKey{Kind: s.Kind, Namespace: e.Workload.Namespace, Name: s.Name}
		if now := e.graph.Source(key); now != nil {
			return s.UID != now.UID || s.Version < dependency.ParseVersion(now.ResourceVersion)
		}
		if now := e.graph.Unread(key); now != nil {
			return s.UID != now.UID || s.Version < dependency.ParseVersion(now.ResourceVersion)
		}
		unknown := !e.graph.Observes(s.Kind) || e.graph.SelectedByLabel() // it may be there, and not read
		return s.UID != "" && !unknown
	})
}

// askAgents changes the decision about a workload whose agents apply what changes: it is in sync once they say that they have. Every
// replica reads the same of them, at its time.
func (e *Evaluation) askAgents(d *Decision) {
	if e.Policy.Strategy != Agent || d.State != InSync || d.Reason == ReasonNoPods {
		return
	}
	a := &e.Agents
	total := a.pods
	if !e.Workload.Custom { // of others, it may not be how many there should be
		total = max(total, int(e.Workload.Replicas))
	}
	unseen := total - a.pods
	some := podsHave(a.applied, total, "applied the current content") + "."
	switch {
	case total == 0:
		return
	case len(a.failed) > 0:
		d.State, d.Reason, d.Stale = Failed, ReasonAgentFailed, true
		d.Message = fmt.Sprintf("%s cannot apply the current content: %s. %s", pods(a.failed), a.failedMessage, some)
	case len(a.incomplete) > 0:
		d.State, d.Reason, d.Stale = Blocked, ReasonAgentIncomplete, true
		d.Message = fmt.Sprintf("%s %s required sources: %s. %s", pods(a.incomplete), lack(len(a.incomplete)), a.incompleteMessage, some)
	case len(a.behind) > 0:
		d.State, d.Reason, d.Stale = Pending, ReasonAgentsApplying, true
		d.Message = fmt.Sprintf("%s %s %s yet to report that.", some, pods(a.behind), have(len(a.behind)))
	case len(a.silent) > 0:
		d.State, d.Reason = Pending, ReasonAgentsSilent
		d.Message = fmt.Sprintf("%s %s %s reported nothing: the agent needs --report, and the right to patch its pod.", some, pods(a.silent), have(len(a.silent)))
	case unseen > 0:
		d.State, d.Reason = Pending, ReasonAgentsSilent
		d.Message = fmt.Sprintf("%s %d are without the label %s=%s: of pods without it, nothing is known.", some, unseen, status.Label, status.LabelValue)
		if unseen == 1 {
			d.Message = fmt.Sprintf("%s One pod is without the label %s=%s: of pods without it, nothing is known.", some, status.Label, status.LabelValue)
		}
	default:
		d.Reason = ReasonContentApplied
		d.Message = fmt.Sprintf("The agents of all %d pods have applied the current content.", total)
		if total == 1 {
			d.Message = "The agent of the pod has applied the current content."
		}
	}
	d.Message += e.notSeen()
}

// podsHave renders a clause such as "1 of 3 pods has applied the current content".
func podsHave(some, all int, done string) string {
	if all == 1 {
		return fmt.Sprintf("%d of 1 pod has %s", some, done)
	}
	return fmt.Sprintf("%d of %d pods %s %s", some, all, have(some), done)
}

func have(n int) string {
	if n == 1 {
		return "has"
	}
	return "have"
}

func lack(n int) string {
	if n == 1 {
		return "lacks"
	}
	return "lack"
}

// pods names pods.
func pods(names []string) string {
	if len(names) == 1 {
		return "Pod " + names[0]
	}
	return "Pods " + enumerate(names)
}

func compareAgentSources(a, b AgentSource) int {
	return cmp.Or(strings.Compare(string(a.Kind), string(b.Kind)), strings.Compare(a.Name, b.Name))
}
