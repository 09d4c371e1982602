// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"slices"
	"strings"

	"github.com/configdep/configdep/pkg/dependency"
)

// Exports for tests, which are in package policy_test because they use package ingest, which imports this package.

const (
	MaxGlobs    = maxGlobs
	MaxPattern  = maxPattern
	MaxPatterns = maxPatterns
	MaxValue    = maxValue
)

var (
	ParseDuration   = parseDuration
	ParsePatterns   = parsePatterns
	ReadAnnotations = Dialects(nil).readAnnotations
)

// AddDialect adds a dialect until remove is called.
func AddDialect(d Dialect) (remove func()) {
	before := allDialects
	allDialects = append(slices.Clone(before), d)
	return func() { allDialects = before }
}

// EveryAnnotation contains the annotations that users may set on workloads and namespaces.
var EveryAnnotation = []string{
	ReloadAnnotation, SourcesAnnotation, ExcludeAnnotation, KindsAnnotation,
	LiveVolumesAnnotation, SettleAnnotation, MinIntervalAnnotation, StrategyAnnotation,
}

// Restarts reports whether changes of a source, which the pods read or not, restart a workload with the policy, and by
// which annotation; empty: by those that declare the mode.
func (p *Policy) Restarts(kind dependency.SourceKind, name string, read bool, marks dependency.SourceMarks) (restarts bool, by string) {
	m := p.Matchers()
	n := m.Of(kind, name, Naming{})
	if p.Mode == Off || !read && !n.named() {
		return false, ""
	}
	r := &dependency.Reference{Kind: kind, Name: name, Uses: dependency.Wholly}
	restarts, _ = p.verdict(n, r, &dependency.Source{SourceMarks: marks}, false)
	return restarts, cmp.Or(m.DeclaredBy(kind, name, &n), declaredAlone(p))
}

// declaredAlone returns the annotation that opts a workload in, if it is one.
func declaredAlone(p *Policy) string {
	if p.DeclaredBy == DeclaredByDefault || strings.Contains(p.DeclaredBy, ",") {
		return ""
	}
	return p.DeclaredBy
}
