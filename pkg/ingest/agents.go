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

// AgentPods is the name of the stream of pods with agents in all namespaces.
const AgentPods = "pods/agents"

// agentPods returns the stream of the metadata of pods with agents. The API server selects them by a label, and leaves out those that have
// finished.
func (c Scope) agentPods() []*stream {
	if !c.Agents {
		return nil
	}
	s := &stream{
		name: AgentPods, resource: corev1.SchemeGroupVersion.WithResource("pods"), kind: partialKind, agents: true,
		labels: status.Label + "=" + status.LabelValue,
		fields: fields.AndSelectors(
			fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)), fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed)),
		).String(),
	}
	s.reduce = func(m metav1.Object) (*object, error) {
		o := reduced(m)
		if o.Name != "" { // a bookmark has no name
			o.agent = c.agentPod(m)
			o.unowned = o.agent == nil
		}
		return o, nil
	}
	s.decode = func(raw []byte) (*object, error) {
		var m metav1.PartialObjectMetadata
		if err := m.Unmarshal(raw); err != nil {
			return nil, err
		}
		return s.reduce(&m)
	}
	return []*stream{s}
}

// agentPod returns what is kept of a pod with an agent; nil: it belongs to no workload of a known kind.
func (c Scope) agentPod(m metav1.Object) *dependency.AgentPod {
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
