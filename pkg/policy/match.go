// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"slices"

	"github.com/configdep/configdep/pkg/dependency"
)

// Which sources a policy selects.

// Matchers match many sources against the patterns of a policy.
type Matchers struct {
	sources, exclude dependency.Matcher
	policy           *Policy
	globs            []dependency.Pattern // of the sources, if other dialects name any
}

// Matchers returns those of the patterns of the policy.
func (p *Policy) Matchers() Matchers {
	m := Matchers{sources: dependency.NewMatcher(p.Sources), exclude: dependency.NewMatcher(p.Exclude), policy: p}
	if p.NamedBy != nil {
		m.globs = slices.DeleteFunc(slices.Clone(p.Sources), func(x dependency.Pattern) bool { return !x.Glob() })
	}
	return m
}

// Naming is what the patterns of a policy say about a source.
type Naming struct {
	excluded bool
	byName   bool
	globs    []int // the numbers of those that name it; valid until the next source
	whole    bool  // all its keys count, because of the dialect that names it
}

// OnlyGlobs reports whether only globs name it.
func (n *Naming) OnlyGlobs() bool { return !n.byName && len(n.globs) > 0 }

func (n *Naming) named() bool { return n.byName || len(n.globs) > 0 }

// Of returns what they say about a source. Buffer is reused from the previous result.
func (m *Matchers) Of(kind dependency.SourceKind, name string, buffer Naming) Naming {
	n := Naming{
		excluded: m.exclude.Matches(kind, name),
		byName:   m.sources.Names(kind, name),
		globs:    m.sources.Globs(kind, name, buffer.globs[:0]),
	}
	n.whole = m.policy.NamedBy != nil && m.namedBy(kind, name, &n) != ""
	return n
}

// namedBy returns the annotation of another dialect that names a source.
func (m *Matchers) namedBy(kind dependency.SourceKind, name string, n *Naming) string {
	if by := m.policy.NamedBy[dependency.Pattern{Kind: kind, Name: name}]; by != "" || m.policy.NamedBy == nil {
		return by
	}
	for _, i := range n.globs {
		if by := m.policy.NamedBy[m.globs[i]]; by != "" {
			return by
		}
	}
	return ""
}

// DeclaredBy returns the annotation that excludes or names a source, or selects the sources of its kind; empty: it is
// Policy.DeclaredBy.
func (m *Matchers) DeclaredBy(kind dependency.SourceKind, name string, n *Naming) string {
	p := m.policy
	switch {
	case n.excluded:
		return cmp.Or(p.ExcludedBy[dependency.Pattern{Kind: kind, Name: name}], ExcludeAnnotation)
	case n.named():
		return cmp.Or(m.namedBy(kind, name, n), SourcesAnnotation)
	case p.Modes != nil:
		return p.Modes[kind].DeclaredBy
	default:
		return ""
	}
}

// verdict reports whether a change of a source restarts the workload, and if not, why. Remembered
// reports whether an absent source counted: it has no annotations any longer, but its deletion is a
// change for workloads in mode Matched.
func (p *Policy) verdict(n Naming, r *dependency.Reference, source *dependency.Source, remembered bool) (triggers bool, reason string) {
	mode := p.ModeOf(r.Kind)
	switch {
	case source != nil && source.Ignored:
		return false, ReasonIgnored
	case n.excluded:
		return false, ReasonExcluded
	case n.named():
		return true, ""
	case p.Mode == Listed:
		return false, ReasonNotListed
	case p.Modes != nil && breadth[mode] <= breadth[Listed]:
		return false, ReasonKindNotWatched
	case mode == Matched && (source == nil && !remembered || source != nil && !source.Match):
		return false, ReasonNotMatched
	case p.Kinds != nil && !slices.Contains(p.Kinds, r.Kind):
		return false, ReasonKindNotWatched
	case !r.Reads() && r.Mountable():
		return false, ReasonNotMounted
	case !r.Reads():
		return false, ReasonNotRead
	case p.LiveVolumes && !slices.ContainsFunc(r.Uses, needsRestart):
		return false, ReasonLiveVolume
	default:
		return true, ""
	}
}

// Why a change of a source does not restart a workload by itself.
const (
	ReasonReloadOff      = "ReloadOff"
	ReasonNotObserved    = "NotObserved"
	ReasonIgnored        = "Ignored"
	ReasonExcluded       = "Excluded"
	ReasonNotListed      = "NotListed"
	ReasonNotMatched     = "NotMatched"
	ReasonKindNotWatched = "KindNotWatched"
	ReasonNotMounted     = "NotMounted"
	ReasonNotRead        = "NotRead"
	ReasonLiveVolume     = "LiveVolume"
)

// needsRestart reports whether a running container keeps the old content of a use.
func needsRestart(u dependency.Use) bool {
	file := u.Type == dependency.Volume || u.Type == dependency.Projected || u.Type == dependency.CSI
	return u.Reads() && (!file || u.SubPath)
}

// effective narrows a reference to the uses whose content counts, and widens it to the
// whole source when the policy names it though nothing reads it, or in a dialect in which all keys count.
func (p *Policy) effective(r *dependency.Reference, n Naming) dependency.Reference {
	out := *r
	if n.whole {
		out.Uses = dependency.Wholly
		return out
	}
	if p.LiveVolumes && slices.ContainsFunc(r.Uses, needsRestart) {
		out.Uses = slices.DeleteFunc(slices.Clone(r.Uses), func(u dependency.Use) bool { return !needsRestart(u) })
	}
	if !out.Reads() || p.LiveVolumes && !slices.ContainsFunc(out.Uses, needsRestart) {
		out.Uses = dependency.Wholly
	}
	return out
}

// Counts reports whether a change of a source counts, and narrows the reference to what does. The arguments are those of verdict.
func (p *Policy) Counts(n Naming, r *dependency.Reference, source *dependency.Source, remembered bool) (out dependency.Reference, triggers bool, reason string) {
	if len(p.Fields) == 0 || !r.Sets() {
		if triggers, reason = p.verdict(n, r, source, remembered); triggers {
			out = p.effective(r, n)
		}
		return out, triggers, reason
	}
	if source != nil && source.Ignored || n.excluded {
		_, reason = p.verdict(n, r, source, remembered)
		return out, false, reason
	}
	out = *r
	out.Uses = nil
	isField := func(u dependency.Use) bool { return u.Type == dependency.Field }
	rest := *r
	if rest.Uses = slices.DeleteFunc(slices.Clone(r.Uses), isField); len(rest.Uses) > 0 {
		if also, _ := p.verdict(n, &rest, source, remembered); also {
			out = p.effective(&rest, n)
		}
	}
	out.Uses = append(slices.Clone(out.Uses), slices.DeleteFunc(slices.Clone(r.Uses), func(u dependency.Use) bool { return !isField(u) })...)
	return out, true, ""
}
