// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package dependencytest makes what tests need of a graph. Only tests may import it.
package dependencytest

import "github.com/configdep/configdep/pkg/dependency"

// ConfigHash returns the hash of the content that references in a namespace read.
func ConfigHash(d *dependency.Digester, g *dependency.Graph, namespace string, references []dependency.Reference) string {
	var b []byte
	for i := range references {
		r := &references[i]
		b = dependency.AppendContent(b, r, g.Source(dependency.SourceKey{Kind: r.Kind, Namespace: namespace, Name: r.Name}))
	}
	return d.ContentHash(namespace, b)
}
