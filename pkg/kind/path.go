// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/configdep/configdep/pkg/dependency"
)

// The limits of a Path. Descriptors come from a file, and every object of their kind is read along their paths.
const (
	maxPathLength   = 512
	maxPathSegments = 32
	// maxPathAll limits the [*] of a path.
	maxPathAll = 3
)

// pathSyntax is what errors say is allowed.
const pathSyntax = "allowed are .name, ['any name'] and [*]"

// Path says where values are in an object. It is a part of the syntax of the printer columns of custom resources: .a.b, ['a.b/c'] for
// a name with other characters than letters, digits, "-" and "_", and [*] for all elements of a list or all values of a map. The zero
// value is no path.
type Path struct{ segments []segment }

// segment is a name, or [*].
type segment struct {
	name string
	all  bool
}

// ParsePath parses a path. Errors say at which byte it is invalid, counted from 1.
func ParsePath(text string) (Path, error) {
	switch {
	case text == "":
		return Path{}, errors.New("must not be empty: " + pathSyntax)
	case len(text) > maxPathLength:
		return Path{}, fmt.Errorf("must have at most %d bytes", maxPathLength)
	case !utf8.ValidString(text):
		return Path{}, errors.New("must be UTF-8")
	}
	var p Path
	all := 0
	for rest := text; rest != ""; {
		s, after, err := parseSegment(rest)
		if err != nil {
			return Path{}, fmt.Errorf("at byte %d: %w", len(text)-len(rest)+1, err)
		}
		if s.all {
			all++
		}
		p.segments, rest = append(p.segments, s), after
	}
	switch {
	case len(p.segments) > maxPathSegments:
		return Path{}, fmt.Errorf("must have at most %d names and [*]", maxPathSegments)
	case all > maxPathAll:
		return Path{}, fmt.Errorf("must have at most %d [*]", maxPathAll)
	}
	return p, nil
}

// parseSegment parses the first segment of a path that is not empty, and returns what follows it.
func parseSegment(text string) (s segment, rest string, err error) {
	if rest, found := strings.CutPrefix(text, "[*]"); found {
		return segment{all: true}, rest, nil
	}
	if quoted, found := strings.CutPrefix(text, "['"); found {
		name, rest, found := strings.Cut(quoted, "']")
		switch {
		case !found:
			return segment{}, "", errors.New("the name has no end: '] is expected")
		case name == "":
			return segment{}, "", errors.New("the name must not be empty")
		case strings.ContainsRune(name, '\'') || strings.ContainsFunc(name, unicode.IsControl):
			return segment{}, "", errors.New("the name must not contain ' or control characters")
		}
		return segment{name: name}, rest, nil
	}
	if text[0] != '.' {
		return segment{}, "", fmt.Errorf("%s; this is %q", pathSyntax, firstRune(text))
	}
	end := 1
	for end < len(text) && isPlain(text[end]) {
		end++
	}
	if end == 1 {
		return segment{}, "", errors.New(`a name is expected after "."; names with other characters than letters, digits, "-" and "_" are written as ['any name']`)
	}
	return segment{name: text[1:end]}, text[end:], nil
}

func firstRune(text string) string {
	_, size := utf8.DecodeRuneInString(text)
	return text[:size]
}

// isPlain reports whether a character of a name needs no quotes.
func isPlain(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_'
}

// String returns the path in its shortest form.
func (p Path) String() string {
	var b strings.Builder
	for _, s := range p.segments {
		switch {
		case s.all:
			b.WriteString("[*]")
		case strings.ContainsFunc(s.name, func(r rune) bool { return r >= utf8.RuneSelf || !isPlain(byte(r)) }):
			b.WriteString("['" + s.name + "']")
		default:
			b.WriteString("." + s.name)
		}
	}
	return b.String()
}

// IsZero reports whether this is no path.
func (p Path) IsZero() bool { return len(p.segments) == 0 }

// TemplatePaths returns where pod templates are in objects of an Optional kind.
func (k *Kind) TemplatePaths() []Path {
	if k.layout == nil {
		return nil
	}
	return k.layout.templates
}

// Uses reports whether configdep itself reads or writes a field of objects of an Optional kind, other than a pod template: what it reads is
// kept, and may be shown. Of the names of its path, entry reports which are entries of lists.
func (k *Kind) Uses(names []string, entry func(i int) bool) bool {
	if k.layout == nil {
		return false
	}
	begins := func(with []string) bool {
		return len(with) > 0 && len(with) <= len(names) && slices.Equal(with, names[:len(with)])
	}
	return k.layout.tree.reads(names, entry) || k.Traits.Restart != nil && begins(k.Traits.Restart.Field) || k.Traits.RestartsAt && begins(dependency.RestartAt.Field)
}

// LeadsTo reports whether the path is the beginning of another one, or all of it. Of the other one, entry reports which of its segments are
// entries of lists, which have no name.
func (p Path) LeadsTo(names []string, entry func(i int) bool) bool {
	if len(p.segments) > len(names) {
		return false
	}
	for i, s := range p.segments {
		if !s.all && (entry(i) || s.name != names[i]) {
			return false
		}
	}
	return true
}

// Names returns the names of a path. It fails for a path with [*], which has no single place.
func (p Path) Names() ([]string, error) {
	names := make([]string, len(p.segments))
	for i, s := range p.segments {
		if s.all {
			return nil, errors.New("must not contain [*]")
		}
		names[i] = s.name
	}
	return names, nil
}

// Each calls f for each value at the path in decoded JSON, until f returns false. Lists are visited in their order, and maps in the order of
// their keys. A part of the path that is not there, or is of another type, has no values.
func (p Path) Each(value any, f func(any) bool) {
	p.eachWithin([]any{value}, func(_ []any, v any) bool { return f(v) })
}

// eachWithin is like Each for the last of some values. It also passes f these values, followed by the element or value that each [*] stands for.
// f must not keep them.
func (p Path) eachWithin(within []any, f func(within []any, value any) bool) bool {
	value := within[len(within)-1]
	for i, s := range p.segments {
		if s.all {
			rest := Path{p.segments[i+1:]}
			return eachOf(value, func(v any) bool { return rest.eachWithin(append(slices.Clip(within), v), f) })
		}
		object, _ := value.(map[string]any)
		member, found := object[s.name]
		if !found {
			return true
		}
		value = member
	}
	return f(within, value)
}

// eachOf calls f for the elements of a list or the values of a map, until f returns false.
func eachOf(value any, f func(any) bool) bool {
	switch v := value.(type) {
	case []any:
		for _, element := range v {
			if !f(element) {
				return false
			}
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if !f(v[key]) {
				return false
			}
		}
	}
	return true
}

// get returns the first value at the path, or nil.
func (p Path) get(value any) (first any) {
	p.Each(value, func(v any) bool {
		first = v
		return false
	})
	return first
}

// lastAll returns how many [*] the path has, and how many segments up to the last one.
func (p Path) lastAll() (count, segments int) {
	for i, s := range p.segments {
		if s.all {
			count, segments = count+1, i+1
		}
	}
	return count, segments
}

// sharesAll reports whether each [*] of the path is one of another path, so that they stand for the same elements.
func (p Path) sharesAll(other Path) bool {
	_, n := p.lastAll()
	return n <= len(other.segments) && slices.Equal(p.segments[:n], other.segments[:n])
}

// getWithin returns the value at a path that sharesAll with one for which eachWithin has passed some values, or nil.
func (p Path) getWithin(within []any) any {
	count, segments := p.lastAll()
	return Path{p.segments[segments:]}.get(within[count])
}
