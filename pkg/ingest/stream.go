// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
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
	labels    string                  // and fields select what is read
	fields    string                  //
	workloads dependency.WorkloadKind // or
	sources   dependency.SourceKind   // or
	unread    string                  // the type of Secrets that are not read, or
	mounted   bool                    // it is what pods have mounted of SecretProviderClasses, or
	agents    bool                    // it is pods with agents, or none of them: namespaces
	json      bool                    // it comes in JSON, and not in protobuf
	optional  *kind.Kind              // whose definition may come and go; nil: it is always there
	again     bool                    // the next list is in another version, so that all of it is read again
	// reduce reduces an object, and decode an encoded one, whose content it overwrites.
	reduce func(metav1.Object) (*object, error)
	decode func([]byte) (*object, error)
}

// namespaces reports whether it is the stream of namespaces, which are cluster-scoped.
func (s *stream) namespaces() bool {
	return s.workloads == "" && s.sources == "" && s.unread == "" && !s.mounted && !s.agents
}

type name struct{ namespace, name string }

// names returns the names of the stream's objects in the graph.
func (s *stream) names(g *dependency.Graph) map[name]struct{} {
	names := map[name]struct{}{}
	switch {
	case s.sources != "":
		g.EachSource(func(source *dependency.Source) {
			if source.Kind == s.sources && s.within(source.Namespace) {
				names[name{source.Namespace, source.Name}] = struct{}{}
			}
		})
	case s.unread != "":
		g.EachUnread(func(u *dependency.Unread) {
			if u.Type == s.unread && s.within(u.Namespace) {
				names[name{u.Namespace, u.Name}] = struct{}{}
			}
		})
	case s.workloads != "":
		g.EachWorkload(func(w *dependency.Workload) {
			if w.Kind == s.workloads && s.within(w.Namespace) {
				names[name{w.Namespace, w.Name}] = struct{}{}
			}
		})
	case s.mounted:
		g.EachPodStatus(func(p *dependency.PodStatus) {
			if s.within(p.Namespace) {
				names[name{p.Namespace, p.Name}] = struct{}{}
			}
		})
	case s.agents:
		g.EachAgentPod(func(p *dependency.AgentPod) {
			if s.within(p.Namespace) {
				names[name{p.Namespace, p.Name}] = struct{}{}
			}
		})
	default:
		g.EachNamespace(func(n string) { names[name{"", n}] = struct{}{} })
	}
	return names
}

func (s *stream) within(namespace string) bool { return s.namespace == "" || s.namespace == namespace }

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
		case s.namespaces():
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

// resources returns what is read of each resource, in all namespaces.
func (c Scope) resources(digester *dependency.Digester) (all []*stream) {
	for _, k := range c.kinds() {
		all = append(all, c.workloads(k, digester))
	}
	all = append(all, c.configMaps(digester)...)
	all = append(all, c.secrets(digester)...)
	all = append(all, c.podStatuses(digester)...)
	all = append(all, c.agentPods()...)
	return append(all, newStream(corev1.SchemeGroupVersion.WithKind("Namespace"), "namespaces", c.readNamespace))
}

// message is a pointer to an API object.
type message[T any] interface {
	*T
	metav1.Object
	Unmarshal([]byte) error
}

// newStream returns a stream of objects of a Go type, of which read notes what remains.
func newStream[T any, P message[T]](gvk schema.GroupVersionKind, resource string, read func(P, *object)) *stream {
	s := &stream{name: resource, resource: gvk.GroupVersion().WithResource(resource), kind: gvk.Kind}
	s.reduce = func(m metav1.Object) (*object, error) {
		o := reduced(m)
		if p, ok := m.(P); ok && o.Name != "" { // a bookmark has no name
			read(p, o)
		}
		return o, nil
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
		name: StreamOf(k), resource: k.Served(), kind: k.GroupVersionKind().Kind, workloads: k.Name,
		labels: k.LabelSelector, fields: k.FieldSelector,
	}
	if k.Optional {
		s.optional = k
	}
	reduce := func(m metav1.Object, complete func(*dependency.Object)) (*object, error) {
		o := reduced(m)
		if o.Name == "" { // a bookmark has no name
			return o, nil
		}
		whole, ok := m.(kind.Object)
		if !ok {
			return nil, fmt.Errorf("a %T came instead of a %s", m, k.Name)
		}
		read, err := k.Read(whole)
		switch {
		case err != nil:
			return nil, err
		case read == nil:
			o.dropped = dependency.WorkloadKey{Kind: k.Name, Namespace: o.Namespace, Name: o.Name}
		default:
			c.Kinds.Relate(read)
			complete(read)
			o.workload = c.Dialects.ReadWorkload(read)
		}
		return o, nil
	}
	s.reduce = func(m metav1.Object) (*object, error) { return reduce(m, func(*dependency.Object) {}) }
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
			return reduce(o, func(read *dependency.Object) {
				if k.Traits.Fields {
					read.Fields = fieldsOf(digester, raw, read.Meta)
				}
			})
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
				o := reduced(&m)
				o.dropped = dependency.WorkloadKey{Kind: k.Name, Namespace: o.Namespace, Name: o.Name}
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

// newSources returns a stream of a kind of sources.
func newSources[T any, P message[T]](
	c Scope, source dependency.SourceKind, resource string, digester *dependency.Digester, from func(*dependency.Digester, P, dependency.SourceMarks) *dependency.Source,
) *stream {
	s := newStream[T](corev1.SchemeGroupVersion.WithKind(string(source)), resource, func(p P, o *object) {
		o.source = from(digester, p, c.Dialects.ReadSource(p.GetAnnotations()))
	})
	s.sources, s.labels, s.decode = source, c.sourceLabels(), (&sourceDecoder{source, c.Dialects, digester}).decode
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
