// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package dependencytest makes what tests need of a graph. Only tests may import it.
package dependencytest

import (
	"bytes"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/configdep/configdep/pkg/dependency"
)

// Source returns what is kept of a ConfigMap or a Secret, which stays as it is.
func Source(d *dependency.Digester, o runtime.Object, marks dependency.SourceMarks) *dependency.Source {
	var s *dependency.Source
	var keys []dependency.KeyDigest
	add := func(key string, value []byte) {
		keys = append(keys, dependency.KeyDigest{Key: key, Digest: d.Content(bytes.Clone(value))})
	}
	switch o := o.(type) {
	case *corev1.ConfigMap:
		for key, value := range o.Data {
			add(key, []byte(value))
		}
		for key, value := range o.BinaryData {
			add(key, value)
		}
		s = dependency.NewSource(dependency.ConfigMap, &o.ObjectMeta, marks, keys)
		s.Immutable = ptr.Deref(o.Immutable, false)
	case *corev1.Secret:
		for key, value := range o.Data {
			add(key, value)
		}
		s = dependency.NewSource(dependency.Secret, &o.ObjectMeta, marks, keys)
		s.Immutable = ptr.Deref(o.Immutable, false)
	}
	return s
}

// ConfigHash returns the hash of the content that references in a namespace read.
func ConfigHash(d *dependency.Digester, g *dependency.Graph, namespace string, references []dependency.Reference) string {
	var b []byte
	for i := range references {
		r := &references[i]
		b = dependency.AppendContent(b, r, g.Source(dependency.SourceKey{Kind: r.Kind, Namespace: namespace, Name: r.Name}))
	}
	return d.ContentHash(namespace, b)
}
