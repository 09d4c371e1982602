// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"encoding/json"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/apis/policy/v1alpha1"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/limit"
)

const policyKind = "ReloadPolicy"

// Policies is the name of the stream of ReloadPolicies.
var Policies = v1alpha1.Resource("reloadpolicies").String()

// policyPart is the ReloadPolicies of the cluster. Their definition is optional. While it is served and they have not been read, no automatic restart
// begins.
type policyPart struct{}

func policies() *stream {
	resource := v1alpha1.SchemeGroupVersion.WithResource("reloadpolicies")
	s := &stream{
		name: Policies, resource: resource, kind: policyKind, part: policyPart{}, json: true,
		optional: &kind.Kind{Name: policyKind, Resource: resource, Optional: true, OfCluster: true, Versions: []string{resource.Version}},
	}
	s.read = func(m metav1.Object) (any, error) { return limit.New(m.(*v1alpha1.ReloadPolicy)), nil }
	s.decode = func(raw []byte) (*object, error) {
		var p v1alpha1.ReloadPolicy
		if err := json.Unmarshal(raw, &p); err != nil {
			return nil, err
		}
		return s.reduce(&p)
	}
	return s
}

func (policyPart) each(g *dependency.Graph, f func(namespace, name string)) {
	for _, p := range limit.In(g).All() {
		f("", p.Name)
	}
}

func (policyPart) holds(g *dependency.Graph, o *object) bool {
	return slices.ContainsFunc(limit.In(g).All(), func(p *limit.Policy) bool { return p.Name == o.Name && p.ResourceVersion == o.ResourceVersion })
}

func (policyPart) put(x *Index, o *object, _ dependency.Arrival) touched {
	return x.setLimits(limit.In(x.graph).With(o.value.(*limit.Policy)))
}

func (policyPart) drop(x *Index, _, name string, _ dependency.Arrival) touched {
	return x.setLimits(limit.In(x.graph).Without(name))
}

// setLimits sets what limits restarts, which concerns all workloads. There may be many, so it lets others use the index in between. It returns what the sinks
// have yet to be notified of.
func (x *Index) setLimits(s *limit.Set) (out touched) {
	same := limit.In(x.graph).Same(s)
	x.graph.SetLimits(s)
	if same || len(x.waiting) > 0 { // then, the sinks are told of all workloads
		return touched{}
	}
	graph := x.graph
	graph.Snapshot().EachWorkload(func(w *dependency.Workload) {
		if x.graph != graph { // everything has been forgotten meanwhile
			return
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

// policies reports whether it is the stream of ReloadPolicies.
func (s *stream) policies() bool {
	_, is := s.part.(policyPart)
	return is
}

// awaitPolicies notes, if a stream is that of policies, whether there may be some that have not been read: their definition is served, or it is not known
// whether it is.
func (x *Index) awaitPolicies(s *stream, may bool) {
	if !s.policies() {
		return
	}
	defer x.tellSinks()
	x.change()
	defer x.mu.Unlock()
	x.note(x.setLimits(limit.In(x.graph).Unread(may)))
}
