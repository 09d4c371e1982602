// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"regexp"
	"slices"
	"strings"
)

// Pattern names sources of the namespace of a workload: one, or all that a glob matches.
type Pattern struct {
	Kind SourceKind
	// Name is the name of a source, a glob, in which each * stands for any characters, or a regular expression that begins
	// with ^, which no name does. What is said of globs holds for regular expressions too.
	Name string
}

// Glob reports whether the pattern may name several sources.
func (p Pattern) Glob() bool { return p.Regexp() || strings.Contains(p.Name, "*") }

// Regexp reports whether the pattern is a regular expression.
func (p Pattern) Regexp() bool { return strings.HasPrefix(p.Name, "^") }

// Matches reports whether the pattern names a source. A regular expression that is malformed names none.
func (p Pattern) Matches(kind SourceKind, name string) bool {
	if !p.Glob() {
		return p.Kind == kind && p.Name == name
	}
	m := newGlobMatcher(p)
	return m.matches(kind, name)
}

// Work returns the relative cost of matching a name: 0 for a plain name, 1 for a glob, and 1 plus its length for a regular
// expression, because about as long is the program that it is compiled to.
func (p Pattern) Work() int {
	switch {
	case p.Regexp():
		return 1 + len(p.Name) - len(regexpPrefix+regexpSuffix)
	case !p.Glob():
		return 0
	default:
		return 1
	}
}

// Matcher matches many sources against patterns. Its zero value names none.
type Matcher struct {
	names map[sourceID]bool
	globs []globMatcher
}

// NewMatcher returns a Matcher of some patterns.
func NewMatcher(patterns []Pattern) (m Matcher) {
	for _, p := range patterns {
		if p.Glob() {
			m.globs = append(m.globs, newGlobMatcher(p))
			continue
		}
		if m.names == nil {
			m.names = make(map[sourceID]bool, len(patterns))
		}
		m.names[sourceID{p.Kind, p.Name}] = true
	}
	return m
}

// Matches reports whether any of the patterns names a source.
func (m *Matcher) Matches(kind SourceKind, name string) bool {
	return m.Names(kind, name) || slices.ContainsFunc(m.globs, func(g globMatcher) bool { return g.matches(kind, name) })
}

// Names reports whether a pattern that is not a glob names a source.
func (m *Matcher) Names(kind SourceKind, name string) bool { return m.names[sourceID{kind, name}] }

// Globs appends to found which of the globs name a source: their numbers, in the order of the
// patterns, without those that are no globs.
func (m *Matcher) Globs(kind SourceKind, name string, found []int) []int {
	for i := range m.globs {
		if m.globs[i].matches(kind, name) {
			found = append(found, i)
		}
	}
	return found
}

// globMatcher matches names against a glob or a regular expression.
type globMatcher struct {
	kind   SourceKind
	regexp *regexp.Regexp // nil: it is a glob, or malformed
	prefix string
	parts  []string // of a glob: behind the prefix, between stars
}

func newGlobMatcher(p Pattern) globMatcher {
	if p.Regexp() {
		return globMatcher{kind: p.Kind, regexp: compile(p.Name)}
	}
	parts := strings.Split(p.Name, "*")
	return globMatcher{kind: p.Kind, prefix: parts[0], parts: parts[1:]}
}

func (m *globMatcher) matches(kind SourceKind, name string) bool {
	switch {
	case m.kind != kind || !strings.HasPrefix(name, m.prefix):
		return false
	case m.regexp != nil:
		return m.regexp.MatchString(name)
	case m.parts == nil:
		return false
	}
	rest, last := name[len(m.prefix):], len(m.parts)-1
	for _, part := range m.parts[:last] {
		_, after, found := strings.Cut(rest, part)
		if !found {
			return false
		}
		rest = after
	}
	return strings.HasSuffix(rest, m.parts[last])
}
