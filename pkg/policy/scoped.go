// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"slices"
	"strings"

	"github.com/configdep/configdep/pkg/dependency"
)

// scope is the part of a policy that says which sources count.
type scope struct {
	Policy
	matchers
	known bool
}

// invalid reports whether restarts were on hold because an annotation was invalid: then it is not known what counted,
// and the sources in the record are assumed to.
func (s *scope) invalid() bool { return s.known && len(s.Problems) > 0 }

// recordNames reports whether the record has an entry for a tracked source, for whatever keys.
func (e *Evaluation) recordNames(u *trackedSource) bool {
	_, remembered := e.Record.Sources[u.id]
	return remembered
}

// scopeBefore returns which sources counted when the record was written. It is not known if that
// has not changed since.
func (e *Evaluation) scopeBefore() *scope {
	if e.before != nil {
		return e.before
	}
	e.before = &scope{}
	if e.Workload.ScopedAt.Version == 0 {
		return e.before
	}
	from := scopeFrom(e.Workload.ScopedFrom.String())
	from.InNamespace, from.Traits = e.Workload.Namespace, e.Workload.Traits
	p := NewPolicy(from, e.defaults)
	p.bound(len(e.Workload.References))
	e.before = &scope{Policy: p, known: true}
	e.before.matchers = e.before.Policy.matchers()
	return e.before
}

// remembers reports whether the record contains a source that is absent, so that its deletion may be a change in
// mode Matched; it is not if this process knows that the source had no mark by then.
func (e *Evaluation) remembers(r *dependency.Reference) bool {
	if _, remembered := e.Record.Sources[idOf(r.Kind, r.Name)]; !remembered {
		return false
	}
	e.recalls = e.recalls || e.Policy.modeOf(r.Kind) == Matched
	deleted := e.graph.Deleted(e.sourceKey(r))
	return deleted == nil || deleted.Match
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

// countedBefore reports whether a source counted already, by the same keys, when the annotations that
// say what counts last changed. Then its tracked source is new to the record only because of the template, or
// because the policy names it in another way, and a change before that edit counts too.
func (e *Evaluation) countedBefore(u *trackedSource) bool {
	if e.scopeBefore().invalid() {
		return e.recordNames(u)
	}
	before, counts := e.readBefore(u.counted.Kind, u.counted.Name)
	return counts && scopeOf(&before) == scopeOf(&u.counted.Reference)
}

// readBefore returns what of a source counted by those annotations, if it did.
func (e *Evaluation) readBefore(kind dependency.SourceKind, name string) (effective dependency.Reference, counts bool) {
	before, s := e.scopeBefore(), e.source(kind, name)
	if !before.known || before.Mode == Off || s == nil {
		return effective, false
	}
	n := before.of(kind, name, naming{})
	if onlyAnnotated(s.Reference) && !n.named() {
		return effective, false
	}
	counts, _ = before.verdict(n, s.Reference, s.Source, e.remembers(s.Reference))
	return before.effective(s.Reference, n), counts
}

// countedBeforeInGlob is countedBefore for a source that belongs to a glob, of which everything counts.
func (e *Evaluation) countedBeforeInGlob(u *trackedSource, name string) bool {
	before := e.scopeBefore()
	switch {
	case before.invalid():
		return e.recordNames(u)
	case !before.known || before.Mode == Off:
		return false
	}
	if n := before.of(u.glob.Kind, name, naming{}); n.named() && !n.excluded {
		return true
	}
	read, counts := e.readBefore(u.glob.Kind, name)
	_, whole := read.Keys()
	return counts && whole
}

// eachNamedBefore calls f for the sources of a kind that patterns named when the annotations that say what counts last
// changed, as far as EachRecent does. It reports whether these were all, or f ended the iteration of each pattern.
func (e *Evaluation) eachNamedBefore(kind dependency.SourceKind, f func(*dependency.Source) bool) (complete bool) {
	before := e.scopeBefore()
	complete = true
	if !before.known || before.invalid() || before.Mode == Off {
		return complete
	}
	for _, p := range before.Sources {
		switch {
		case p.Kind != kind:
		case p.Glob():
			complete = e.graph.Matched(e.Workload.Namespace, p, before.Exclude, nil).EachRecent(f) && complete
		default:
			if s := e.graph.Source(dependency.SourceKey{Kind: kind, Namespace: e.Workload.Namespace, Name: p.Name}); s != nil {
				f(s)
			}
		}
	}
	return complete
}

// knowsOtherwise reports whether the record knows a glob, with other sources that do not belong to it: then it says
// what the content of those was that do. A record of another replica may have been decided on before annotations of
// the namespace changed, though it was written after that; but not if these were the first to have the glob.
func (e *Evaluation) knowsOtherwise(u *trackedSource) bool {
	return e.recordNames(u) && (e.decided != 0 || !slices.Contains(e.scopeBefore().Sources, *u.glob))
}
