// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	"k8s.io/utils/lru"
)

// Some tools let annotations name sources by regular expressions, which match whole names. Most of these only have a few
// alternatives, or end in ".*". They become names and globs, which cost less; see Pattern.Work.

const (
	regexpPrefix, regexpSuffix = "^(?:", ")$"
	// maxAlternatives limits the names and globs that stand for one regular expression.
	maxAlternatives = 64
	// maxRegexpStars limits the stars in one of them, as with more the expression itself is cheaper to match.
	maxRegexpStars = 4
)

// ignoresCase matches the beginning of a group with flags, among them i.
var ignoresCase = regexp.MustCompile(`\(\?[a-zA-Z]*i`)

// PatternsOfRegexp returns patterns that together name the sources of a kind whose whole name a regular expression
// matches, in the syntax of package regexp, but without classes of Unicode and the flag i: names consist of lower-case
// letters, digits, hyphens and dots, and it takes long to parse these. An error says what is wrong with the expression.
func PatternsOfRegexp(kind SourceKind, expression string) ([]Pattern, error) {
	if most := maxName - len(regexpPrefix+regexpSuffix); len(expression) > most {
		return nil, fmt.Errorf("must not have more than %d bytes", most)
	}
	if ignoresCase.MatchString(expression) {
		return nil, errors.New("must not have the flag i: names are in lower case")
	}
	parsed, err := syntax.Parse(expression, syntax.Perl&^syntax.UnicodeGroups)
	if err != nil {
		if wrong, is := errors.AsType[*syntax.Error](err); is {
			return nil, fmt.Errorf("is not a regular expression: %v", wrong.Code)
		}
		return nil, fmt.Errorf("is not a regular expression: %w", err)
	}
	if names, simple := globsOf(withoutAnchors(parsed)); simple {
		patterns := make([]Pattern, len(names))
		for i, name := range names {
			patterns[i] = Pattern{kind, name}
		}
		return patterns, nil
	}
	p := Pattern{kind, regexpPrefix + expression + regexpSuffix}
	if work := p.Work(); work > MaxWorkOfGlob {
		return nil, fmt.Errorf("is too complex: it counts as %d, and no pattern may count as more than %d", work, MaxWorkOfGlob)
	}
	return []Pattern{p}, nil
}

// withoutAnchors removes ^ from the beginning and $ from the end, where they have no effect.
func withoutAnchors(re *syntax.Regexp) *syntax.Regexp {
	if re.Op != syntax.OpConcat {
		return re
	}
	out := *re
	out.Sub = slices.Clone(re.Sub)
	for len(out.Sub) > 0 && out.Sub[0].Op == syntax.OpBeginText {
		out.Sub = out.Sub[1:]
	}
	for len(out.Sub) > 0 && out.Sub[len(out.Sub)-1].Op == syntax.OpEndText {
		out.Sub = out.Sub[:len(out.Sub)-1]
	}
	return &out
}

// globsOf returns names and globs that together match the same names as a regular expression; false: there are none, or
// too many.
func globsOf(re *syntax.Regexp) (globs []string, simple bool) {
	switch re.Op {
	case syntax.OpEmptyMatch:
		return []string{""}, true
	case syntax.OpLiteral:
		text := string(re.Rune)
		return []string{text}, re.Flags&syntax.FoldCase == 0 && !strings.ContainsAny(text, meta+"^")
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return []string{"?"}, true
	case syntax.OpCharClass:
		return globsOfClass(re.Rune)
	case syntax.OpStar, syntax.OpPlus:
		if of := re.Sub[0].Op; of != syntax.OpAnyChar && of != syntax.OpAnyCharNotNL {
			return nil, false
		}
		if re.Op == syntax.OpPlus {
			return []string{"?*"}, true
		}
		return []string{"*"}, true
	case syntax.OpQuest:
		globs, simple = globsOf(re.Sub[0])
		return append([]string{""}, globs...), simple
	case syntax.OpCapture:
		return globsOf(re.Sub[0])
	case syntax.OpAlternate:
		for _, sub := range re.Sub {
			more, simple := globsOf(sub)
			if globs = append(globs, more...); !simple || len(globs) > maxAlternatives {
				return nil, false
			}
		}
		return globs, true
	case syntax.OpConcat:
		globs = []string{""}
		for _, sub := range re.Sub {
			ends, simple := globsOf(sub)
			if !simple || len(globs)*len(ends) > maxAlternatives {
				return nil, false
			}
			globs = joined(globs, ends)
		}
		return globs, !slices.ContainsFunc(globs, func(g string) bool { return strings.Count(g, "*") > maxRegexpStars })
	default:
		return nil, false
	}
}

func joined(beginnings, ends []string) (all []string) {
	for _, b := range beginnings {
		for _, e := range ends {
			all = append(all, b+e)
		}
	}
	return all
}

// globsOfClass returns the characters of a small class that names can have, from pairs of the first and the last of a
// range.
func globsOfClass(ranges []rune) (all []string, simple bool) {
	for i := 0; i < len(ranges); i += 2 {
		for r := ranges[i]; r <= ranges[i+1]; r++ {
			if all = append(all, string(r)); len(all) > maxAlternatives || strings.ContainsRune(meta+"^", r) {
				return nil, false
			}
		}
	}
	return all, true
}

// compiled holds the last regular expressions that were compiled: the same ones are asked for with each evaluation.
var compiled = lru.New(256)

// compiledRegexp is a regular expression with its size. Nil: it is malformed, or too large to be compiled.
type compiledRegexp struct {
	*regexp.Regexp
	size int
}

func compile(name string) compiledRegexp {
	if known, found := compiled.Get(name); found {
		return known.(compiledRegexp)
	}
	var c compiledRegexp
	if parsed, err := syntax.Parse(name, syntax.Perl); err == nil {
		if c.size = sizeOf(parsed); c.size <= MaxWorkOfGlob {
			c.Regexp = regexp.MustCompile(name)
		}
	}
	compiled.Add(name, c)
	return c
}

// maxSize is where sizeOf stops to count.
const maxSize = 1 << 16

// sizeOf returns about how many instructions a regular expression has when it is compiled: each may be executed for each
// character of a name. It does not compile the expression, which can be thousands of times as long as its text.
func sizeOf(re *syntax.Regexp) (size int) {
	for _, sub := range re.Sub {
		size = min(maxSize, size+sizeOf(sub))
	}
	switch re.Op {
	case syntax.OpLiteral:
		size = len(re.Rune)
	case syntax.OpConcat, syntax.OpEmptyMatch:
	case syntax.OpAlternate:
		size += len(re.Sub) - 1
	case syntax.OpRepeat:
		most := max(re.Min, re.Max) // without a maximum, that is -1
		size = most*size + most - re.Min
	default: // one more than what is in it
		size++
	}
	return min(maxSize, size)
}
