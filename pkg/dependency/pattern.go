// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// Pattern names sources of the namespace of a workload: one, or all that a glob matches.
type Pattern struct {
	Kind SourceKind
	// Name is the name of a source, a glob as in path.Match, or a regular expression that begins with ^, which no name
	// does. What is said of globs holds for regular expressions too.
	Name string
}

// meta are the characters with a special meaning in a glob, and beyondStars those of them that need path.Match.
const (
	meta        = "*" + beyondStars
	beyondStars = `?[\`
)

// Glob reports whether the pattern may name several sources.
func (p Pattern) Glob() bool { return p.Regexp() || strings.ContainsAny(p.Name, meta) }

// Regexp reports whether the pattern is a regular expression.
func (p Pattern) Regexp() bool { return strings.HasPrefix(p.Name, "^") }

// Matches reports whether the pattern names a source. A glob that is malformed names none.
func (p Pattern) Matches(kind SourceKind, name string) bool {
	if p.Kind != kind {
		return false
	}
	switch {
	case p.Regexp():
		re := compile(p.Name)
		return re != nil && re.MatchString(name)
	case !p.Glob():
		return p.Name == name
	}
	matched, err := path.Match(p.Name, name)
	return err == nil && matched
}

// Work returns the relative cost of matching a name: 0 for a plain name, 1 for a glob with only stars, else 1 plus its
// length, because path.Match reads it again from each place where it may begin, and as long as a regular expression is the
// program that it is compiled to.
func (p Pattern) Work() int {
	switch {
	case p.Regexp():
		return 1 + len(p.Name) - len(regexpPrefix+regexpSuffix)
	case !p.Glob():
		return 0
	case strings.ContainsAny(p.Name, beyondStars):
		return 1 + len(p.Name)
	}
	return 1
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

// globMatcher matches as path.Match does, which reads the whole glob for each name, or package regexp.
type globMatcher struct {
	Pattern
	regexp *regexp.Regexp // nil: it is none
	prefix string
	parts  []string // behind the prefix, between stars; nil: there is more to the glob than stars
}

func newGlobMatcher(p Pattern) globMatcher {
	if p.Regexp() {
		return globMatcher{Pattern: p, regexp: compile(p.Name)}
	}
	m := globMatcher{Pattern: p, prefix: p.Name[:strings.IndexAny(p.Name, meta)]}
	if !strings.ContainsAny(p.Name, beyondStars) {
		m.parts = strings.Split(p.Name, "*")[1:]
	}
	return m
}

func (m *globMatcher) matches(kind SourceKind, name string) bool {
	if m.Kind != kind || !strings.HasPrefix(name, m.prefix) {
		return false
	}
	if m.regexp != nil {
		return m.regexp.MatchString(name)
	}
	if m.parts == nil || strings.IndexByte(name, '/') >= 0 {
		return m.Matches(kind, name)
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
