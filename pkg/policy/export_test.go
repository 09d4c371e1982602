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
	MaxGlobs      = maxGlobs
	MaxPattern    = maxPattern
	MaxPatterns   = maxPatterns
	MaxKeyNames   = maxKeyNames
	KeyNameLength = keyNameLength
	SettleLimit   = settleLimit
	DoubtRecheck  = doubtRecheck
	Mixed         = mixed
	MaxValue      = maxValue
	NoPod         = noPod
)

var (
	Interval        = interval
	NotBefore       = notBefore
	ParseDuration   = parseDuration
	ParsePatterns   = parsePatterns
	SettledAt       = settledAt
	Enumerate       = enumerate
	EncodePods      = podsToEvict
	ReadAnnotations = Dialects(nil).readAnnotations
	UpperFirst      = upperFirst
	IDOf            = idOf
	ScopeOf         = scopeOf
	ScopeFrom       = scopeFrom
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

func (e *Evaluation) Doubts() []Excursion { return e.doubts() }

// Reorder makes e an excursion of another change.
func (e *Excursion) Reorder() { e.order++ }

// Entry returns the entry in a record for the first source that triggers.
func (e *Evaluation) Entry() string { return e.tracked[0].entry() }

// HadOtherKeys reports whether that source lacks keys that it had according to an entry of a record.
func (e *Evaluation) HadOtherKeys(entry string) bool { return e.tracked[0].hadOtherKeys(entry) }

// GlobsChanged calls f for each glob with the number of changes of its sources, and whether each of these changes was
// seen as an event.
func (e *Evaluation) GlobsChanged(f func(times int, live bool)) {
	for i := range e.tracked {
		if u := &e.tracked[i]; u.glob != nil {
			_, _, times, live := e.timesChanged(u, dependency.Moment{}, 0)
			f(times, live)
		}
	}
}

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

// Scope returns the text that stands for which sources count.
func (ds Dialects) Scope(a Annotated) string { return ds.scope(a) }

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
