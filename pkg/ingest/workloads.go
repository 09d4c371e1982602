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
	s.lossy = k.Name == kind.Job // of runs, no version is kept
	read := func(m metav1.Object, raw []byte) (any, error) {
		whole, ok := m.(kind.Object)
		if !ok {
			return nil, fmt.Errorf("a %T came instead of a %s", m, k.Name)
		}
		o, err := k.Read(whole)
		if run := k.RunOf(m); o == nil && err == nil && run != nil {
			return run, nil
		}
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
				o := metadata(&m)
				if run := k.RunOf(&m); run != nil {
					o.value = run
				}
				return o, nil
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
	g.EachRun(func(r *dependency.Run) {
		if r.Kind == dependency.WorkloadKind(p) {
			f(r.Namespace, r.Name)
		}
	})
}

func (workloadPart) holds(g *dependency.Graph, o *object) bool {
	read, is := o.value.(*dependency.Workload)
	if !is { // of a run, no version is kept
		return false
	}
	w := g.Workload(read.WorkloadKey)
	return w != nil && w.UID == read.UID && w.ResourceVersion == o.ResourceVersion
}

func (workloadPart) put(x *Index, o *object, at dependency.Arrival) (what touched) {
	if run, is := o.value.(*dependency.Run); is {
		what = x.dropWorkload(run.WorkloadKey) // it may have been shown before it had its controller
		if x.graph.SetRun(run) {
			what.add(x.known([]dependency.WorkloadKey{run.WorkloadKey}, false))
		}
		return what
	}
	w := o.value.(*dependency.Workload)
	if run := x.graph.DeleteRun(w.WorkloadKey); run != nil { // it has lost its controller
		what = x.known([]dependency.WorkloadKey{run.Of}, false)
	}
	previous := x.graph.Workload(w.WorkloadKey)
	x.graph.Borrow(w)
	w.After(previous, at)
	x.setWorkload(w)
	what.add(touchedWorkload(w))
	what.add(x.lend(w.WorkloadKey))
	what.add(x.makeRoom(previous, w))
	return what
}

func (p workloadPart) drop(x *Index, namespace, name string, _ dependency.Arrival) touched {
	key := dependency.WorkloadKey{Kind: dependency.WorkloadKind(p), Namespace: namespace, Name: name}
	if run := x.graph.DeleteRun(key); run != nil {
		return x.known([]dependency.WorkloadKey{run.Of}, false)
	}
	return x.dropWorkload(key)
}

func (x *Index) dropWorkload(key dependency.WorkloadKey) touched {
	w := x.graph.Workload(key)
	if w == nil {
		return touched{}
	}
	x.graph.DeleteWorkload(key)
	what := touchedWorkload(w)
	what.add(x.lend(key))
	what.add(x.makeRoom(w, nil))
	return what
}

// lend updates the workloads whose pods have the template of another one, which has been written or deleted. There are at most
// dependency.MaxBorrowers.
func (x *Index) lend(key dependency.WorkloadKey) (what touched) {
	for _, b := range x.graph.Borrowers(key) {
		next := *x.graph.Workload(b) // values in the graph are immutable
		if x.graph.Borrow(&next) {
			x.setWorkload(&next)
			what.add(touchedWorkload(&next))
		}
	}
	return what
}

// makeRoom updates the workloads that have the same template as one that comes, goes or has another template: only so many have its sources.
// Before and now are its states, of which one may be nil.
func (x *Index) makeRoom(before, now *dependency.Workload) (what touched) {
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
			what.add(x.lend(key))
		}
	}
	return what
}

// touchedWorkload returns what a change of a workload affects.
func touchedWorkload(w *dependency.Workload) touched {
	return touched{workloads: []dependency.WorkloadKey{w.WorkloadKey}}
}

// setWorkload adds a workload to the graph, with what annotations say about it: its own and those of its namespace.
func (x *Index) setWorkload(w *dependency.Workload) {
	p := policy.Note(w, x.graph.Namespace(w.Namespace), x.defaults)
	x.graph.SetWorkload(w, p.Patterns())
}
