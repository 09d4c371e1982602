// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/kind"
)

// stream is one resource that is read.
type stream struct {
	name      string
	resource  schema.GroupVersionResource
	namespace string // to which it is limited; empty: it is not
	kind      string
	labels    string     // and fields select what is read
	fields    string     //
	json      bool       // it comes in JSON, and not in protobuf
	optional  *kind.Kind // whose definition may come and go; nil: it is always there
	again     bool       // the next list is in another version, so that all of it is read again
	part                 // of the graph, which it fills
	// lossy: the graph may lack an object that has been read, or its version. If it does, that is no sign of a restore of etcd.
	lossy bool
	// read returns what the graph keeps of an object that has a name; nil: nothing.
	read func(metav1.Object) (any, error)
	// decode reduces an encoded object, whose content it overwrites.
	decode func([]byte) (*object, error)
}

// part is a part of the graph: objects of which it keeps values of one type. Each has a file of its own, and a line in Scope.resources.
type part interface {
	// each calls f with the namespace and the name of each object.
	each(g *dependency.Graph, f func(namespace, name string))
	// holds reports whether the graph has an object in just the version in which it was listed.
	holds(g *dependency.Graph, o *object) bool
	// put adds or replaces an object, and returns what that affects.
	put(x *Index, o *object, at dependency.Arrival) touched
	// drop removes an object and returns what that affects.
	drop(x *Index, namespace, name string, at dependency.Arrival) touched
}

// holds reports whether the graph has an object in just the version in which it was listed. If nothing is kept of the object, it has not.
func (s *stream) holds(g *dependency.Graph, o *object) bool {
	return o.value != nil && s.part.holds(g, o)
}

// put adds or replaces an object, or drops it if nothing is kept of it, and returns what that affects.
func (s *stream) put(x *Index, o *object, at dependency.Arrival) touched {
	switch {
	case o.value != nil:
		return s.part.put(x, o, at)
	case o.Name != "":
		return s.drop(x, o.Namespace, o.Name, at)
	}
	return touched{} // a bookmark
}

// reduce reduces an object.
func (s *stream) reduce(m metav1.Object) (*object, error) { return reduced(m, s.read) }

// namespaces reports whether it is the stream of namespaces, which are cluster-scoped.
func (s *stream) namespaces() bool {
	_, is := s.part.(namespacePart)
	return is
}

// ofCluster reports whether its objects are in no namespace.
func (s *stream) ofCluster() bool { return s.namespaces() || s.policies() }

type name struct{ namespace, name string }

// names returns the names of the stream's objects in the graph.
func (s *stream) names(g *dependency.Graph) map[name]struct{} {
	names := map[name]struct{}{}
	s.each(g, func(namespace, n string) {
		if s.namespace == "" || s.namespace == namespace {
			names[name{namespace, n}] = struct{}{}
		}
	})
	return names
}

// in returns the stream of one namespace.
func (s *stream) in(namespace string) *stream {
	one := *s
	one.name, one.namespace = namespace+"/"+s.name, namespace
	return &one
}

// served returns the stream in the version that is served now. Again: what was read of it was in another one.
func (s *stream) served(again bool) *stream {
	now := *s
	now.resource, now.again = s.optional.Served(), again
	return &now
}

// streams returns all streams, with the digester for content. Namespaces are always read, because
// their annotations are defaults.
func (c Scope) streams(digester *dependency.Digester) (in []*stream) {
	for _, s := range c.resources(digester) {
		switch {
		case s.ofCluster():
			in = append(in, s)
		case len(c.Namespaces) == 0:
			in = append(in, s.without(c.IgnoredNamespaces))
		default:
			for _, namespace := range c.Namespaces {
				in = append(in, s.in(namespace))
			}
		}
	}
	return in
}

// Required returns the rights without which the server is never ready: to list and watch all that is read but optional kinds.
func (c Scope) Required() (all []authorizationv1.ResourceAttributes) {
	for _, s := range c.streams(nil) {
		for _, verb := range []string{verbList, verbWatch} {
			need := authorizationv1.ResourceAttributes{Verb: verb, Group: s.resource.Group, Version: s.resource.Version, Resource: s.resource.Resource, Namespace: s.namespace}
			if s.optional == nil && !slices.Contains(all, need) { // several streams read Secrets
				all = append(all, need)
			}
		}
	}
	return all
}

// resources returns what is read of each resource, in all namespaces.
func (c Scope) resources(digester *dependency.Digester) (all []*stream) {
	for _, k := range c.kinds() {
		if k.Name == kind.Deployment {
			all = append(all, c.replicaSets())
		}
		if k.Name != kind.Pod { // see pods
			all = append(all, c.workloads(k, digester))
		}
	}
	all = append(all, c.pods())
	if !c.WithoutConfigMaps {
		all = append(all, c.sources(dependency.ConfigMap, "configmaps", digester))
	}
	if !c.WithoutSecrets {
		all = append(all, c.secrets(digester)...)
	}
	if c.PodStatuses {
		all = append(all, podStatuses())
	}
	if c.Policies {
		all = append(all, policies())
	}
	return append(all, c.namespaces())
}

// message is a pointer to an API object.
type message[T any] interface {
	*T
	metav1.Object
	Unmarshal([]byte) error
}

// newStream returns a stream of objects of a Go type, of which read returns what the graph keeps.
func newStream[T any, P message[T]](gvk schema.GroupVersionKind, resource string, of part, read func(P) any) *stream {
	s := &stream{name: resource, resource: gvk.GroupVersion().WithResource(resource), kind: gvk.Kind, part: of}
	s.read = func(m metav1.Object) (any, error) {
		p, ok := m.(P)
		if !ok {
			return nil, fmt.Errorf("a %T came instead of a %s", m, gvk.Kind)
		}
		return read(p), nil
	}
	s.decode = func(raw []byte) (*object, error) {
		p := P(new(T))
		if err := p.Unmarshal(raw); err != nil {
			return nil, err
		}
		return s.reduce(p)
	}
	return s
}

func joinSorted(set map[string]bool) string {
	names := make([]string, 0, len(set))
	for n := range set {
		names = append(names, n)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
