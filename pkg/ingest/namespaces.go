// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/limit"
)

// namespacePart is the namespaces, of which the graph keeps no versions, so it is lossy.
type namespacePart struct{}

// namespace is what is kept of a namespace: annotations, which are defaults for the workloads in it, labels, by which policies select it, and whether it is
// being deleted.
type namespace struct {
	annotations, labels map[string]string
	terminating         bool
}

// namespaces returns the stream of namespaces.
func (c Scope) namespaces() *stream {
	s := newStream(corev1.SchemeGroupVersion.WithKind("Namespace"), "namespaces", namespacePart{}, func(n *corev1.Namespace) any {
		selected := c.NamespaceSelector == nil || c.NamespaceSelector.Matches(labels.Set(n.Labels))
		out := &namespace{annotations: c.Dialects.ReadNamespace(n.Annotations, selected), terminating: n.DeletionTimestamp != nil}
		if c.Policies {
			out.labels = n.Labels
		}
		return out
	})
	s.lossy = true
	return s
}

// unreadNamespace returns what counts for the workloads of a namespace that has not been read: nothing, and with a selector that
// it is not selected.
func (c Scope) unreadNamespace() map[string]string {
	if c.NamespaceSelector == nil {
		return nil
	}
	return c.Dialects.ReadNamespace(nil, false)
}

func (namespacePart) each(g *dependency.Graph, f func(namespace, name string)) {
	g.EachNamespace(func(name string) { f("", name) })
}

func (namespacePart) holds(*dependency.Graph, *object) bool { return false }

func (namespacePart) put(x *Index, o *object, _ dependency.Arrival) touched {
	return x.setNamespace(o.Name, o.value.(*namespace))
}

func (namespacePart) drop(x *Index, _, name string, _ dependency.Arrival) touched {
	return x.setNamespace(name, &namespace{annotations: x.scope.unreadNamespace()})
}

// setNamespace applies the annotations of a namespace, which are defaults for all workloads in it, and whether it is
// being deleted. There may be many workloads, so it lets others use the index in between. It returns what the sinks
// have yet to be notified of.
func (x *Index) setNamespace(name string, n *namespace) (out touched) {
	annotated, ending := x.graph.SetNamespace(name, n.annotations), x.graph.SetTerminating(name, n.terminating)
	limited := x.graph.SetNamespaceLabels(name, n.labels) && limit.In(x.graph) != nil
	if !annotated && !ending && !limited {
		return touched{}
	}
	graph := x.graph
	graph.Snapshot().EachWorkloadIn(name, func(w *dependency.Workload) {
		if x.graph != graph { // everything has been forgotten meanwhile
			return
		}
		if now := graph.Workload(w.WorkloadKey); annotated && now != nil {
			next := *now // values in the graph are immutable
			x.setWorkload(&next)
		}
		out.workloads = append(out.workloads, w.WorkloadKey)
		if x.countApplied() {
			x.tellPart(&out)
		}
	})
	if x.graph != graph {
		return touched{}
	}
	return out
}
