// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/configdep/configdep/pkg/dependency"
)

// unreadPart is the Secrets of a type of which only the metadata is read. It is lossy, because such a Secret may have been of another
// type before, and another stream tells of that.
type unreadPart string

// typeField is the field of Secrets by which the API server selects types.
const typeField = "type"

// unread returns a stream of the metadata of Secrets of a type. A Secret has one type for all its life.
func unread(typ string) *stream {
	s := &stream{
		name: "secrets/" + typ, resource: corev1.SchemeGroupVersion.WithResource("secrets"), part: unreadPart(typ), lossy: true,
		kind: partialKind, fields: fields.OneTermEqualSelector(typeField, typ).String(),
	}
	s.read = func(m metav1.Object) (any, error) {
		return &dependency.Unread{
			SourceKey: dependency.SourceKey{Kind: dependency.Secret, Namespace: m.GetNamespace(), Name: m.GetName()},
			Type:      typ, UID: m.GetUID(), ResourceVersion: m.GetResourceVersion(), Created: m.GetCreationTimestamp(),
		}, nil
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

func (p unreadPart) each(g *dependency.Graph, f func(namespace, name string)) {
	g.EachUnread(func(u *dependency.Unread) {
		if u.Type == string(p) {
			f(u.Namespace, u.Name)
		}
	})
}

func (unreadPart) holds(g *dependency.Graph, o *object) bool {
	read := o.value.(*dependency.Unread)
	u := g.Unread(read.SourceKey)
	return u != nil && u.Type == read.Type && u.UID == read.UID && u.ResourceVersion == o.ResourceVersion
}

func (unreadPart) put(x *Index, o *object, _ dependency.Arrival) touched {
	u := o.value.(*dependency.Unread)
	x.graph.SetUnread(u)
	return x.users(u.SourceKey)
}

func (p unreadPart) drop(x *Index, namespace, name string, _ dependency.Arrival) touched {
	key := dependency.SourceKey{Kind: dependency.Secret, Namespace: namespace, Name: name}
	x.graph.DeleteUnread(key, string(p))
	return x.users(key)
}
