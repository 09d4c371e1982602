// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"slices"
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"github.com/configdep/configdep/pkg/agent/status"
	"github.com/configdep/configdep/pkg/dependency"
)

// agentPart is the pods with agents.
type agentPart struct{}

// AgentPods is the name of the stream of pods with agents in all namespaces.
const AgentPods = "pods/agents"

// agentPods returns the stream of the metadata of pods with agents. The API server selects them by a label, and leaves out those that have
// finished.
func (c Scope) agentPods() *stream {
	s := newStream(corev1.SchemeGroupVersion.WithKind(partialKind), "pods", agentPart{}, c.agentPod)
	s.name, s.labels = AgentPods, status.Label+"="+status.LabelValue
	s.fields = fields.AndSelectors(
		fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)), fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed)),
	).String()
	return s
}

// agentPod returns what is kept of a pod with an agent; nil: it belongs to no workload of a known kind.
func (c Scope) agentPod(m *metav1.PartialObjectMetadata) any {
	key, owner, found := c.Kinds.WorkloadOf(m)
	if !found {
		return nil
	}
	p := &dependency.AgentPod{
		Namespace: m.GetNamespace(), Name: m.GetName(), ResourceVersion: m.GetResourceVersion(),
		Workload: key, Owner: owner, Terminating: m.GetDeletionTimestamp() != nil,
	}
	value, reported := m.GetAnnotations()[status.Annotation]
	if !reported {
		return p
	}
	report, err := status.Parse(value)
	if err != nil {
		p.State, p.Message = dependency.AgentUnreadable, "the annotation "+status.Annotation+" "+err.Error()
		return p
	}
	p.State, p.Message = dependency.AgentState(report.State), strings.Map(printable, report.Message)
	sources := make([]dependency.AgentSource, 0, len(report.Sources))
	for _, s := range report.Sources {
		kind := dependency.SourceKind(s.Kind)
		// Whether a source of another namespace has changed is not for those who can read this one.
		if kind.Observed() && s.Namespace == p.Namespace && len(validation.NameIsDNSSubdomain(s.Name, false)) == 0 {
			sources = append(sources, dependency.AgentSource{
				Kind: kind, Name: s.Name, UID: types.UID(s.UID), Version: dependency.ParseVersion(s.ResourceVersion),
			})
		}
	}
	p.Sources = slices.Clip(dependency.SortAgentSources(sources))
	return p
}

// printable replaces what is not for a line of text.
func printable(r rune) rune {
	if unicode.IsPrint(r) {
		return r
	}
	return ' '
}

func (agentPart) each(g *dependency.Graph, f func(namespace, name string)) {
	g.EachAgentPod(func(p *dependency.AgentPod) { f(p.Namespace, p.Name) })
}

func (agentPart) holds(g *dependency.Graph, o *object) bool {
	p := g.AgentPod(o.Namespace, o.Name)
	return p != nil && p.ResourceVersion == o.ResourceVersion
}

func (agentPart) put(x *Index, o *object, _ dependency.Arrival) touched {
	p := *o.value.(*dependency.AgentPod)
	p.Seen = x.clock.Now()
	return x.known(x.graph.SetAgentPod(&p))
}

func (agentPart) drop(x *Index, namespace, name, _ string, _ seen) touched {
	return x.known(x.graph.DeleteAgentPod(namespace, name))
}

// known returns those of some workloads that are in the graph as what a change affects.
func (x *Index) known(keys []dependency.WorkloadKey) (what touched) {
	for _, key := range keys {
		if x.graph.Workload(key) != nil {
			what.workloads = append(what.workloads, key)
		}
	}
	return what
}
