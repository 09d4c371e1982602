// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/policy"
)

// workloadPart is the workloads of a kind.
type workloadPart dependency.WorkloadKind

// StreamOf returns the name of the stream of a kind in all namespaces: the resource, and if the kind is Optional RESOURCE.GROUP,
// because several groups may have a resource of that name.
func StreamOf(k *kind.Kind) string {
	if k.Optional {
		return k.Resource.GroupResource().String()
	}
	return k.Resource.Resource
}

// workloads returns a stream of a kind of workloads, with a digester for the values of their fields.
func (c Scope) workloads(k *kind.Kind, digester *dependency.Digester) *stream {
	s := &stream{
		name: StreamOf(k), resource: k.Served(), kind: k.GroupVersionKind().Kind, part: workloadPart(k.Name),
		labels: k.LabelSelector, fields: k.FieldSelector,
	}
	if k.Optional {
		s.optional = k
	}
	read := func(m metav1.Object, raw []byte) (any, error) {
		whole, ok := m.(kind.Object)
		if !ok {
			return nil, fmt.Errorf("a %T came instead of a %s", m, k.Name)
		}
		o, err := k.Read(whole)
		if err != nil || o == nil {
			return nil, err
		}
		c.Kinds.Relate(o)
		if raw != nil && k.Traits.Fields {
			o.Fields = fieldsOf(digester, raw, o.Meta)
		}
		return c.Dialects.ReadWorkload(o), nil
	}
	s.read = func(m metav1.Object) (any, error) { return read(m, nil) }
	if _, protobuf := k.New().(unmarshaler); !protobuf {
		s.json = true
		decode := k.Decode
		if decode == nil {
			decode = func(raw []byte) (kind.Object, error) {
				o := k.New()
				return o, json.Unmarshal(raw, o)
			}
		}
		s.decode = func(raw []byte) (*object, error) {
			if k.Traits.Fields {
				defer clear(raw) // it may contain values of Secrets
			}
			o, err := decode(raw)
			if err != nil {
				return nil, err
			}
			return reduced(o, func(m metav1.Object) (any, error) { return read(m, raw) })
		}
		return s
	}
	s.decode = func(raw []byte) (*object, error) {
		if k.Hidden != nil {
			// For objects that are not shown, only the metadata is decoded, which is the first field of
			// all objects.
			var m metav1.PartialObjectMetadata
			if err := m.Unmarshal(raw); err != nil {
				return nil, err
			}
			if k.IsHidden(&m) {
				return metadata(&m), nil
			}
		}
		o := k.New()
		if err := o.(unmarshaler).Unmarshal(raw); err != nil {
			return nil, err
		}
		return s.reduce(o)
	}
	return s
}

// unmarshaler decodes itself from protobuf.
type unmarshaler interface{ Unmarshal(raw []byte) error }

func (p workloadPart) each(g *dependency.Graph, f func(namespace, name string)) {
	g.EachWorkload(func(w *dependency.Workload) {
		if w.Kind == dependency.WorkloadKind(p) {
			f(w.Namespace, w.Name)
		}
	})
}

func (workloadPart) holds(g *dependency.Graph, o *object) bool {
	read := o.value.(*dependency.Workload)
	w := g.Workload(read.WorkloadKey)
	return w != nil && w.UID == read.UID && w.ResourceVersion == o.ResourceVersion
}

func (workloadPart) put(x *Index, o *object, at dependency.Arrival) touched {
	w := o.value.(*dependency.Workload)
	previous := x.workload(w.WorkloadKey)
	shared := w.KeepReferences(previous)
	x.graph.Borrow(w)
	w.After(previous, at)
	x.setWorkload(w, previous, o.ResourceVersion, at)
	what := touchedWorkload(w)
	if !shared {
		what.add(x.lend(w.WorkloadKey, o.ResourceVersion, at))
	}
	what.add(x.makeRoom(previous, w, o.ResourceVersion, at))
	return what
}

func (p workloadPart) drop(x *Index, namespace, name, _ string, _ seen) touched {
	key := dependency.WorkloadKey{Kind: dependency.WorkloadKind(p), Namespace: namespace, Name: name}
	w := x.graph.Workload(key)
	if w == nil {
		return touched{}
	}
	x.graph.DeleteWorkload(key)
	what, at := touchedWorkload(w), x.arrival(true)
	what.add(x.lend(key, w.ResourceVersion, at))
	what.add(x.makeRoom(w, nil, w.ResourceVersion, at))
	return what
}

// lend updates the workloads whose pods have the template of another one, which has been written in a version or deleted. There are at most
// dependency.MaxBorrowers.
func (x *Index) lend(key dependency.WorkloadKey, version string, at dependency.Arrival) touched {
	return x.borrowAgain(key, version, at, func(w *dependency.Workload) { w.StartAgain(version) })
}

// makeRoom updates the workloads that have the same template as one that comes, goes or has another template: only so many have its sources.
// Before and now are its states, of which one may be nil.
func (x *Index) makeRoom(before, now *dependency.Workload, version string, at dependency.Arrival) (what touched) {
	of := func(w *dependency.Workload) (of dependency.WorkloadKey) {
		if w != nil && w.TemplateOf != nil {
			of = *w.TemplateOf
		}
		return of
	}
	if of(before) == of(now) {
		return what
	}
	for _, key := range []dependency.WorkloadKey{of(before), of(now)} {
		if key != (dependency.WorkloadKey{}) {
			what.add(x.borrowAgain(key, version, at, func(*dependency.Workload) {}))
		}
	}
	return what
}

// borrowAgain gives the workloads whose pods have the template of another one what it consumes now, and calls f with those for which that is
// something else.
func (x *Index) borrowAgain(key dependency.WorkloadKey, version string, at dependency.Arrival, f func(*dependency.Workload)) (what touched) {
	for _, b := range x.graph.Borrowers(key) {
		w := x.workload(b)
		next := *w // values in the graph are immutable
		if x.graph.Borrow(&next) {
			f(&next)
			x.setWorkload(&next, w, version, at)
			what.add(touchedWorkload(&next))
		}
	}
	return what
}

// touchedWorkload returns what a change of a workload affects.
func touchedWorkload(w *dependency.Workload) touched {
	return touched{workloads: []dependency.WorkloadKey{w.WorkloadKey}}
}

// workload returns a workload, or nil, and first applies the annotations of its namespace to it, if that has not
// been done.
func (x *Index) workload(key dependency.WorkloadKey) *dependency.Workload {
	w := x.graph.Told(key)
	if w == nil || !x.graph.Behind(w) {
		return w
	}
	next := *w // values in the graph are immutable
	x.setWorkload(&next, w, x.changing.version, x.changing.at)
	return &next
}

// setWorkload adds a workload to the graph, with what annotations say about it: its own
// and those of its namespace, one of which has just been read in a version.
func (x *Index) setWorkload(w, previous *dependency.Workload, version string, at dependency.Arrival) {
	p := policy.Note(w, previous, x.graph.Namespace(w.Namespace), x.defaults, version, at)
	x.graph.SetWorkload(w, p.Patterns())
}
