// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"

	"k8s.io/utils/lru"
)

// Some tools let annotations name sources by regular expressions, which match whole names.

const (
	regexpPrefix, regexpSuffix = "^(?:", ")$"
	// maxRegexp limits an expression in bytes: each may be an instruction that is executed for each character of a name. See Pattern.Work.
	maxRegexp = MaxWorkOfGlob - 1
)

// ignoresCase matches the beginning of a group with flags, among them i.
var ignoresCase = regexp.MustCompile(`\(\?[a-zA-Z]*i`)

// RegexpPattern returns the pattern that names the sources of a kind whose whole name a regular expression matches, in the
// syntax of package regexp, but without classes of Unicode and the flag i: names consist of lower-case letters, digits,
// hyphens and dots, and it takes long to parse these. Nor may it have a {: only repetitions by numbers make what is compiled
// much longer than the text. An error says what is wrong with the expression.
func RegexpPattern(kind SourceKind, expression string) (Pattern, error) {
	switch {
	case len(expression) > maxRegexp:
		return Pattern{}, fmt.Errorf("must not have more than %d bytes", maxRegexp)
	case strings.Contains(expression, "{"):
		return Pattern{}, errors.New("must not have a {: write out what is repeated, or use * or +")
	case ignoresCase.MatchString(expression):
		return Pattern{}, errors.New("must not have the flag i: names are in lower case")
	}
	if _, err := syntax.Parse(expression, syntax.Perl&^syntax.UnicodeGroups); err != nil {
		if wrong, is := errors.AsType[*syntax.Error](err); is {
			return Pattern{}, fmt.Errorf("is not a regular expression: %v", wrong.Code)
		}
		return Pattern{}, fmt.Errorf("is not a regular expression: %w", err)
	}
	return Pattern{kind, regexpPrefix + expression + regexpSuffix}, nil
}

// compiled holds the last regular expressions that were compiled: the same ones are asked for with each evaluation.
var compiled = lru.New(256)

// compile returns the regular expression of a pattern; nil: it is malformed.
func compile(name string) *regexp.Regexp {
	if known, found := compiled.Get(name); found {
		return known.(*regexp.Regexp)
	}
	re, err := regexp.Compile(name)
	if err != nil {
		re = nil
	}
	compiled.Add(name, re)
	return re
}
