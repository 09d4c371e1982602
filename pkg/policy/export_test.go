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
	NoPod       = noPod
)

var (
	Interval        = interval
	NotBefore       = notBefore
	ParseDuration   = parseDuration
	ParsePatterns   = parsePatterns
	Enumerate       = enumerate
	EncodePods      = podsToEvict
	ReadAnnotations = Dialects(nil).readAnnotations
	UpperFirst      = upperFirst
	IDOf            = idOf
)

// AddDialect adds a dialect until remove is called.
func AddDialect(d Dialect) (remove func()) {
	before := allDialects
	allDialects = append(slices.Clone(before), d)
	return func() { allDialects = before }
}

func (l *LastReload) JSON() string { return l.json() }

func (r *Record) SourcesJSON() string { return r.sources() }

func (p *Policy) Bound(sources int) { p.bound(sources) }

// EveryAnnotation contains the annotations that users may set on workloads and namespaces.
var EveryAnnotation = []string{
	ReloadAnnotation, SourcesAnnotation, ExcludeAnnotation, KindsAnnotation,
	LiveVolumesAnnotation, SettleAnnotation, MinIntervalAnnotation, StrategyAnnotation,
}

// AnnotatedWorkload returns a workload with annotations, on itself and on its pod template.
func AnnotatedWorkload(object, template map[string]string) *dependency.Workload {
	a := Dialects(nil).readAnnotations(object, template)
	return &dependency.Workload{Annotations: a.Settings, TemplateAnnotations: a.Template, Marks: a.Marks}
}

// Restarts reports whether changes of a source, which the pods read or not, restart a workload with the policy, and by
// which annotation; empty: by those that declare the mode.
func (p *Policy) Restarts(kind dependency.SourceKind, name string, read bool, marks dependency.SourceMarks) (restarts bool, by string) {
	m := p.matchers()
	n := m.of(kind, name, naming{})
	if p.Mode == Off || !read && !n.named() {
		return false, ""
	}
	r := &dependency.Reference{Kind: kind, Name: name, Uses: dependency.Wholly}
	restarts, _ = p.verdict(n, r, &dependency.Source{SourceMarks: marks}, false)
	return restarts, cmp.Or(m.declaredBy(kind, name, &n), declaredAlone(p))
}

// declaredAlone returns the annotation that opts a workload in, if it is one.
func declaredAlone(p *Policy) string {
	if p.DeclaredBy == DeclaredByDefault || strings.Contains(p.DeclaredBy, ",") {
		return ""
	}
	return p.DeclaredBy
}
