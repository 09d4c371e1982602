package policy

import (
	"cmp"
	"slices"
	"strings"

	"github.com/configdep/configdep/pkg/dependency"
)

// scopeBefore returns the annotations that said which sources count when the record was
// written, or nil: they have not changed since.
func (e *Evaluation) scopeBefore() map[string]string {
	if e.Workload.ScopedAt.Version == 0 {
		return nil
	}
	before := map[string]string{}
	for part := range strings.SplitSeq(e.Workload.ScopedFrom, "\x00") {
		if key, value, found := strings.Cut(part, "="); found {
			before[key] = value
		}
	}
	return before
}

// source returns a source of the evaluation, or nil.
func (e *Evaluation) source(kind dependency.SourceKind, name string) *Source {
	i, found := slices.BinarySearchFunc(e.Sources, name, func(s Source, name string) int {
		return cmp.Or(strings.Compare(string(s.Kind), string(kind)), strings.Compare(s.Name, name))
	})
	if !found {
		return nil
	}
	return &e.Sources[i]
}

// countedBefore reports whether a unit counted already, by the same keys, when the annotations
// that say what counts last changed: then only the template, or another name for it, makes it
// new to the record, and a change before that edit is as much a change as one after it.
func (e *Evaluation) countedBefore(u *unit) bool {
	annotations := e.scopeBefore()
	if annotations == nil || len(u.references) == 0 {
		return false
	}
	before := Of(annotations, nil, e.defaults)
	if before.Mode == Off {
		return false
	}
	for i := range u.references {
		r := &u.references[i]
		s := e.source(r.Kind, r.Name)
		if s == nil {
			return false
		}
		_, remembered := e.Record.Sources[u.id]
		counts, _ := before.verdict(s.Reference, s.Source, remembered)
		effective := before.effective(s.Reference)
		named := slices.ContainsFunc(before.Sources, func(p dependency.Pattern) bool { return p.Matches(r.Kind, r.Name) })
		if !counts || onlyAnnotated(s.Reference) && !named || scopeOf(&effective) != scopeOf(r) {
			return false
		}
	}
	return true
}
