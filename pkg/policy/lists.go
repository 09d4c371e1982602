// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/configdep/configdep/pkg/dependency"
)

// Annotations of other tools list sources of one kind.

// sourceList is an annotation that names sources of a kind.
type sourceList struct {
	key  string
	kind dependency.SourceKind
}

// namesOfKind parses a comma-separated list of names. It leaves out names that no object can have.
func namesOfKind(kind dependency.SourceKind, value string) ([]dependency.Pattern, error) {
	return patternsOfKind(value, func(part string) ([]dependency.Pattern, error) { return named(kind, part), nil })
}

// named returns the pattern for one name, or none if no object can have it.
func named(kind dependency.SourceKind, name string) []dependency.Pattern {
	p := dependency.Pattern{Kind: kind, Name: name}
	if p.Glob() {
		return nil
	}
	return []dependency.Pattern{p}
}

// plainName matches names in which only dots are special in a regular expression. There they stand for themselves: a
// user who writes app.config does not mean app-config.
var plainName = regexp.MustCompile(`^[a-z0-9.-]+$`)

// globLike matches regular expressions that are globs: .* is their *. With another dot they are none, because it matches any
// character, and not only a dot as in a plain name: app.config-.* names app-config-1, too.
var globLike = regexp.MustCompile(`^\^?((?:[a-z0-9-]|\.\*)+)\$?$`)

// regexpsOfKind parses a comma-separated list of regular expressions, each of which must match a whole name. It leaves out
// those that match no name of an object, as far as that is seen.
func regexpsOfKind(kind dependency.SourceKind, value string) ([]dependency.Pattern, error) {
	return remembered(string(kind)+"/"+value, func() ([]dependency.Pattern, error) {
		expressions := 0
		return patternsOfKind(value, func(part string) ([]dependency.Pattern, error) {
			if plainName.MatchString(part) {
				return named(kind, part), nil
			}
			if expressions++; expressions > maxGlobs {
				return nil, fmt.Errorf("must not have more than %d regular expressions", maxGlobs)
			}
			if match := globLike.FindStringSubmatch(part); match != nil {
				if glob := strings.ReplaceAll(match[1], ".*", "*"); strings.Count(glob, "*") <= maxStars {
					return []dependency.Pattern{{Kind: kind, Name: glob}}, nil
				}
			}
			p, err := dependency.RegexpPattern(kind, part)
			if err != nil {
				return nil, fmt.Errorf("%q %w", abbreviate(part), err)
			}
			return []dependency.Pattern{p}, nil
		})
	})
}

// patternsOfKind parses the parts of a comma-separated list. Also parts that name nothing count as sources, because each
// costs as much.
func patternsOfKind(value string, parse func(string) ([]dependency.Pattern, error)) (patterns []dependency.Pattern, err error) {
	if len(value) > maxValue {
		return nil, fmt.Errorf("must not have more than %d bytes", maxValue)
	}
	known, globs, parts := map[dependency.Pattern]bool{}, 0, 0
	for part := range listed(value) {
		if parts++; parts > maxPatterns {
			return nil, fmt.Errorf("must not name more than %d sources", maxPatterns)
		}
		more, err := parse(part)
		if err != nil {
			return nil, err
		}
		for _, p := range more {
			if known[p] || !p.Regexp() && !PossibleName(p.Name) {
				continue
			}
			known[p] = true
			if len(patterns) == maxPatterns {
				return nil, fmt.Errorf("must not name more than %d sources", maxPatterns)
			}
			if p.Glob() {
				if globs++; globs > maxGlobs {
					return nil, fmt.Errorf("must not have more than %d patterns", maxGlobs)
				}
			}
			patterns = append(patterns, p)
		}
	}
	return patterns, nil
}
