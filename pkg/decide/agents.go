// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/configdep/configdep/pkg/agent/status"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/record"
)

// Agents is what the config agents in the pods of a workload say.
type Agents struct {
	// Sources are the sources of the namespace that they have applied, in order, each once; not more than dependency.MaxSources.
	Sources []AgentSource
	// pods is how many pods have an agent, and applied how many of these have applied the current content.
	pods, applied int
	// unnamed is how many of those that have applied name no source, which might have changed since.
	unnamed int
	// The others, by their names.
	behind, silent, incomplete, failed []string
	// The messages of the first agent that is incomplete, and of the first that failed.
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
	if !e.graph.HasAgents() { // as in most clusters
		return
	}
	a := &e.Agents
	compared := 0
	results := map[*dependency.AgentSource]bool{} // whether they are current, by the first of the sources, which pods share that have applied the same
	e.graph.PodsOf(e.Workload, func(p *dependency.Pod) bool {
		report := p.Agent
		if report == nil || !p.Deleted.IsZero() {
			return true
		}
		a.pods++
		current := true
		if len(report.Sources) > 0 {
			var found bool
			if current, found = results[&report.Sources[0]]; !found && compared < maxAgentSources {
				current = e.areCurrent(report.Sources)
				results[&report.Sources[0]], compared = current, compared+len(report.Sources)
				a.add(report.Sources)
			}
		}
		switch report.State {
		case dependency.AgentApplied:
			if len(report.Sources) == 0 {
				a.unnamed++
			}
			if current {
				a.applied++
			} else {
				a.behind = append(a.behind, p.Name)
			}
		case dependency.AgentApplying:
			a.behind = append(a.behind, p.Name)
		case dependency.AgentIncomplete:
			if len(a.incomplete) == 0 {
				a.incompleteMessage = report.Message
			}
			a.incomplete = append(a.incomplete, p.Name)
		case dependency.AgentFailed, dependency.AgentUnreadable:
			if len(a.failed) == 0 {
				a.failedMessage = report.Message
			}
			a.failed = append(a.failed, p.Name)
		case dependency.AgentSilent:
			a.silent = append(a.silent, p.Name)
		}
		return true
	})
	for i := range a.Sources {
		s := &a.Sources[i]
		s.Resolution = e.graph.Resolve(e.Workload.Namespace, &dependency.Reference{Kind: s.Kind, Name: s.Name, Uses: byAgent})
	}
}

// maxAgentSources limits the sources that are compared, and listed, for one workload. Most of its pods have applied the same sources.
// Pods beyond the limit do not count as up to date.
const maxAgentSources = 50_000

// byAgent is how agents use a source: pods start without it.
var byAgent = []dependency.Use{{Type: dependency.ByAgent, Optional: true}}

// add adds sources that are in order.
func (a *Agents) add(sources []dependency.AgentSource) {
	for i := range sources {
		s := &sources[i]
		at, found := slices.BinarySearchFunc(a.Sources, s, func(a AgentSource, s *dependency.AgentSource) int { return -s.Compare(a.Kind, a.Name) })
		if !found && len(a.Sources) < dependency.MaxSources {
			a.Sources = slices.Insert(a.Sources, at, AgentSource{Kind: s.Kind, Name: s.Name})
		}
	}
}

// areCurrent reports whether sources have been applied in their current state, as far as configdep reads them. A version that is newer than the
// one that configdep has read is not current until configdep has read it too: it may be from before a restore of etcd.
func (e *Evaluation) areCurrent(sources []dependency.AgentSource) bool {
	for i := range sources {
		s := &sources[i]
		key := dependency.SourceKey{Kind: s.Kind, Namespace: e.Workload.Namespace, Name: s.Name}
		var uid types.UID
		var version uint64
		if now := e.graph.Source(key); now != nil {
			uid, version = now.UID, dependency.ParseVersion(now.ResourceVersion)
		} else if now := e.graph.Unread(key); now != nil {
			uid, version = now.UID, dependency.ParseVersion(now.ResourceVersion)
		} else if !e.graph.Observes(s.Kind) || e.graph.SelectedByLabel() { // it may be there, and not read
			continue
		}
		if s.UID != uid || uid != "" && s.Version != version {
			return false
		}
	}
	return true
}

// askAgents changes the decision about a workload whose agents apply what changes: it is in sync once all of them report that they
// have. Every replica reads the same reports, but not at the same time.
func (e *Evaluation) askAgents(d *Decision) {
	if e.Policy.Strategy != record.Agent || d.State != InSync && d.State != Unknown || d.Reason == ReasonNoPods {
		return
	}
	a := e.Agents
	total := a.pods
	if !e.Workload.Custom { // of others, it may not be how many there should be
		total = max(total, int(e.Workload.Replicas))
	}
	unseen := total - a.pods
	some := record.PodsHave(a.applied, total, "applied the current content") + "."
	switch {
	case total == 0 && e.Workload.Replicas == 0:
		return
	case total == 0:
		d.State, d.Reason = Pending, ReasonAgentsSilent
		d.Message = fmt.Sprintf("No pod has the label %s=%s: nothing is known about pods without it.", status.Label, status.LabelValue)
	case len(a.failed) > 0:
		d.State, d.Reason, d.Stale = Failed, ReasonAgentFailed, true
		d.Message = fmt.Sprintf("%s cannot apply the current content: %s. %s", pods(a.failed), a.failedMessage, some)
	case len(a.incomplete) > 0:
		d.State, d.Reason, d.Stale = Blocked, ReasonAgentIncomplete, true
		d.Message = fmt.Sprintf("%s %s required sources: %s. %s", pods(a.incomplete), lack(len(a.incomplete)), a.incompleteMessage, some)
	case len(a.behind) > 0:
		d.State, d.Reason, d.Stale = Pending, ReasonAgentsApplying, true
		d.Message = fmt.Sprintf("%s %s %s yet to report that.", some, pods(a.behind), record.Have(len(a.behind)))
	case len(a.silent) > 0:
		d.State, d.Reason = Pending, ReasonAgentsSilent
		d.Message = fmt.Sprintf("%s %s %s reported nothing: the agent needs --report, and the right to patch its pod.", some, pods(a.silent), record.Have(len(a.silent)))
	case unseen > 0:
		d.State, d.Reason = Pending, ReasonAgentsSilent
		d.Message = fmt.Sprintf("%s %d are without the label %s=%s: nothing is known about pods without it.", some, unseen, status.Label, status.LabelValue)
		if unseen == 1 {
			d.Message = fmt.Sprintf("%s One pod is without the label %s=%s: nothing is known about pods without it.", some, status.Label, status.LabelValue)
		}
	default:
		d.Reason = ReasonContentApplied
		d.Message = fmt.Sprintf("The agents of all %d pods have applied the current content.", total)
		if total == 1 {
			d.Message = "The agent of the pod has applied the current content."
		}
		if a.unnamed > 0 {
			d.Message = fmt.Sprintf("The agents of all %d pods have applied what they have read.", total)
		}
		if a.unnamed == a.pods {
			d.Message = "The agents have applied what they have read. They name no ConfigMap and no Secret of this namespace, so it is not known " +
				"whether that is the current content."
			a.unnamed = 0 // that is said
		}
	}
	switch {
	case a.unnamed == 1:
		d.Message += " One pod names no ConfigMap and no Secret of this namespace, so it is not known whether it has the current content."
	case a.unnamed > 1:
		d.Message += fmt.Sprintf(" %d pods name no ConfigMap and no Secret of this namespace, so it is not known whether they have the current content.", a.unnamed)
	}
	d.Message += e.notSeen()
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
