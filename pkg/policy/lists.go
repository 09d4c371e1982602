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

// nameAll adds the sources that annotations of a workload name, each parsed by a function.
func (d *Declaration) nameAll(lists []sourceList, parse func(kind dependency.SourceKind, value string) (list, error)) {
	for _, l := range lists {
		value := d.Workload[l.key]
		if value == "" {
			continue
		}
		names, err := parse(l.kind, value)
		if err != nil {
			d.Problem(l.key, value, err)
		}
		d.name(names, l.key)
	}
}

// namesOfKind parses a comma-separated list of names.
func namesOfKind(kind dependency.SourceKind, value string) (list, error) {
	return listOf(value, func(part string) (dependency.Pattern, error) { return named(kind, part), nil })
}

// named returns the pattern for one name, without a name if no object can have it.
func named(kind dependency.SourceKind, name string) (p dependency.Pattern) {
	if !strings.Contains(name, "*") {
		p = possible(kind, name)
	}
	return p
}

// possible is named for a name or a glob.
func possible(kind dependency.SourceKind, name string) (p dependency.Pattern) {
	if PossibleName(name) {
		p = dependency.Pattern{Kind: kind, Name: name}
	}
	return p
}

// plainName matches names in which only dots are special in a regular expression. There they stand for themselves: a
// user who writes app.config does not mean app-config.
var plainName = regexp.MustCompile(`^[a-z0-9.-]+$`)

// globLike matches regular expressions that are globs: .* is their *. With another dot they are none, because it matches any
// character, and not only a dot as in a plain name: app.config-.* names app-config-1, too.
var globLike = regexp.MustCompile(`^\^?((?:[a-z0-9-]|\.\*)+)\$?$`)

// notInName matches what no name has.
var notInName = regexp.MustCompile(`[^a-z0-9.-]`)

// regexpsOfKind parses a comma-separated list of regular expressions, each of which must match a whole name. One that begins with what no name begins with
// matches none.
func regexpsOfKind(kind dependency.SourceKind, value string) (list, error) {
	return remembered(listKey{kind, value}, func() (list, error) {
		return listOf(value, func(part string) (dependency.Pattern, error) {
			if plainName.MatchString(part) {
				return named(kind, part), nil
			}
			if match := globLike.FindStringSubmatch(part); match != nil {
				if glob := strings.ReplaceAll(match[1], ".*", "*"); strings.Count(glob, "*") <= maxStars {
					return possible(kind, glob), nil
				}
			}
			p, err := dependency.RegexpPattern(kind, part)
			if err != nil {
				return p, fmt.Errorf("%q %w", abbreviate(part), err)
			}
			if begin, _ := regexp.MustCompile(part).LiteralPrefix(); notInName.MatchString(begin) {
				return dependency.Pattern{}, nil
			}
			return p, nil
		})
	})
}
