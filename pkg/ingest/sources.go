// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/configdep/configdep/pkg/dependency"
)

// sourcePart is the ConfigMaps or Secrets that are read.
type sourcePart dependency.SourceKind

// secrets returns the streams for Secrets: one for Secrets that are read, and one for the metadata of each unread
// type. The API server selects by type, so it sends no content of those that are not read.
func (c Scope) secrets(digester *dependency.Digester) []*stream {
	whole := c.sources(dependency.Secret, "secrets", digester)
	all := []*stream{whole}
	read := make([]fields.Selector, len(c.UnreadTypes))
	for i, typ := range c.UnreadTypes {
		read[i] = fields.OneTermNotEqualSelector(typeField, typ)
		all = append(all, unread(typ))
	}
	whole.fields = fields.AndSelectors(read...).String()
	return all
}

// sources returns a stream of a kind of sources.
func (c Scope) sources(source dependency.SourceKind, resource string, digester *dependency.Digester) *stream {
	s := &stream{name: resource, resource: corev1.SchemeGroupVersion.WithResource(resource), kind: string(source), part: sourcePart(source)}
	s.decode = (&sourceDecoder{source, c.Dialects, digester}).decode
	if c.SourceSelector != nil {
		s.labels = c.SourceSelector.String()
	}
	return s
}

func (p sourcePart) each(g *dependency.Graph, f func(namespace, name string)) {
	g.EachSource(func(s *dependency.Source) {
		if s.Kind == dependency.SourceKind(p) {
			f(s.Namespace, s.Name)
		}
	})
}

func (sourcePart) holds(g *dependency.Graph, o *object) bool {
	read := o.value.(*dependency.Source)
	s := g.Source(read.SourceKey)
	return s != nil && s.UID == read.UID && s.ResourceVersion == o.ResourceVersion
}

func (sourcePart) put(x *Index, o *object, at dependency.Arrival) touched {
	s := o.value.(*dependency.Source)
	s.Remember(x.graph.Source(s.SourceKey), x.graph, at)
	x.graph.SetSource(s)
	return x.users(s.SourceKey)
}

func (p sourcePart) drop(x *Index, namespace, name string, at dependency.Arrival) touched {
	key := dependency.SourceKey{Kind: dependency.SourceKind(p), Namespace: namespace, Name: name}
	x.graph.DeleteSource(key, at)
	return x.users(key)
}

// users returns the workloads that use a source. They are found without the lock, because
// there may be many.
func (x *Index) users(key dependency.SourceKey) (what touched) {
	if len(x.waiting) > 0 { // the sinks are told nothing before everything has been read
		return what
	}
	if x.graph.Used(key) {
		what.sources = []dependency.SourceKey{key}
	}
	return what
}
