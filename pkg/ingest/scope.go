// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
)

// Scope says which objects are read, and what of them. The zero value: all.
type Scope struct {
	// Namespaces are those that are read one by one; empty: all.
	Namespaces []string
	// WithoutSecrets: no Secret is read.
	WithoutSecrets bool
	// UnreadTypes are the types of Secrets of which only the metadata is read, so that only their existence is known.
	UnreadTypes []string
	// Dialects are those whose annotations are read.
	Dialects policy.Dialects
}

// secrets returns the streams for Secrets: one for Secrets that are read, and one for the metadata of each unread
// type. The API server selects by type, so it sends no content of those that are not read.
func (c Scope) secrets(digester *dependency.Digester) []*stream {
	if c.WithoutSecrets {
		return nil
	}
	whole := sources(dependency.Secret, "secrets", c.Dialects, digester, dependency.FromSecret)
	all := []*stream{whole}
	read := make([]fields.Selector, len(c.UnreadTypes))
	for i, typ := range c.UnreadTypes {
		read[i] = fields.OneTermNotEqualSelector(typeField, typ)
		all = append(all, unread(typ))
	}
	whole.fields = fields.AndSelectors(read...).String()
	return all
}

// typeField is the field of Secrets by which the API server selects types.
const typeField = "type"

// unread returns a stream of the metadata of Secrets of a type. A Secret has one type for all its life.
func unread(typ string) *stream {
	s := &stream{
		name: "secrets/" + typ, resource: corev1.SchemeGroupVersion.WithResource("secrets"), unread: typ,
		kind: partialKind, fields: fields.OneTermEqualSelector(typeField, typ).String(),
	}
	s.reduce = func(m metav1.Object) (*object, error) {
		o := reduced(m)
		if o.Name != "" { // a bookmark has no name
			o.unread = &dependency.Unread{
				SourceKey: dependency.SourceKey{Kind: dependency.Secret, Namespace: o.Namespace, Name: o.Name},
				Type:      typ, UID: m.GetUID(), ResourceVersion: o.ResourceVersion, Created: m.GetCreationTimestamp(),
			}
		}
		return o, nil
	}
	s.decode = func(raw []byte) (*object, error) {
		m, err := decodeMetadata(raw, nil)
		if err != nil {
			return nil, err
		}
		return s.reduce(m)
	}
	return s
}

// partialKind is the kind of objects of which only the metadata is asked for.
const partialKind = "PartialObjectMetadata"

// accepts returns the media type in which a stream is asked for, of lists and of events.
func (s *stream) accepts(form string, list bool) string {
	if s.unread == "" {
		return form
	}
	kind := partialKind
	if list {
		kind += "List"
	}
	return strings.Join([]string{form, "as=" + kind, "g=" + metav1.GroupName, "v=v1"}, ";")
}
