// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/lru"

	"github.com/configdep/configdep/pkg/dependency"
)

// Mode says which changes restart a workload automatically.
type Mode string

// The modes, by the values of ReloadAnnotation.
const (
	Off     Mode = "off"     // none
	Auto    Mode = "auto"    // of every source whose content reaches a container
	Matched Mode = "matched" // the same, of sources that carry the match annotation
	Listed  Mode = "listed"  // of the sources that SourcesAnnotation names
)

// ParseMode parses a value of ReloadAnnotation.
func ParseMode(value string) (Mode, error) {
	mode, err := oneOf(value, Auto, Matched, Listed, Off)
	if value == "true" { // as other tools have it
		err = fmt.Errorf("%w (did you mean %s?)", err, Auto)
	}
	return mode, err
}

func oneOf[T ~string](value string, allowed ...T) (T, error) {
	if i := slices.Index(allowed, T(value)); i >= 0 {
		return allowed[i], nil
	}
	names := make([]string, len(allowed))
	for i, a := range allowed {
		names[i] = string(a)
	}
	text := "must be " + strings.Join(names, ", ")
	if len(names) > 1 {
		text = "must be one of " + strings.Join(names, ", ")
	}
	if near := nearest(value, allowed); near != "" {
		text += " (did you mean " + string(near) + "?)"
	}
	return "", errors.New(text)
}

func parseBool(value string) (bool, error) {
	if value != "true" && value != "false" {
		return false, errors.New(`must be "true" or "false"`)
	}
	return strconv.ParseBool(value)
}

func parseHold(value string) (string, error) {
	if value == "" {
		return "", errors.New("must say why, such as INC-4711")
	}
	return dependency.Line(value), nil
}

func parseDuration(value string) (time.Duration, error) {
	d, err := time.ParseDuration(value)
	if err != nil || d < 0 {
		return 0, errors.New(`must be a duration such as "0", "500ms", "30s" or "5m"`)
	}
	return d, nil
}

// maxOrder limits the numbers of OrderAnnotation.
const maxOrder = 1000

func parseOrder(value string) (int, error) {
	n, err := strconv.Atoi(value)
	if err != nil || n < -maxOrder || n > maxOrder {
		return 0, fmt.Errorf("must be a whole number between %d and %d", -maxOrder, maxOrder)
	}
	return n, nil
}

func parsePositive(value string) (time.Duration, error) {
	d, err := parseDuration(value)
	if err != nil || d == 0 {
		return 0, errors.New(`must be a duration greater than 0, such as "30s" or "5m"`)
	}
	return d, nil
}

func parseApproval(value string) (bool, error) {
	_, err := oneOf(value, "required")
	return err == nil, err
}

// parseKinds parses a comma-separated list of kinds of sources.
func parseKinds(value string) ([]dependency.SourceKind, error) {
	var kinds []dependency.SourceKind
	for part := range listed(value) {
		kind, err := parseKind(part)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	if kinds == nil {
		return nil, errors.New("must be a comma-separated list of configmap, secret and secretproviderclass")
	}
	return kinds, nil
}

func parseKind(value string) (dependency.SourceKind, error) {
	for _, kind := range observedKinds {
		if strings.EqualFold(value, string(kind)) {
			return kind, nil
		}
	}
	return "", fmt.Errorf("%q is none of configmap, secret and secretproviderclass", abbreviate(value))
}

// Each pattern of an annotation is matched against each source of a workload, and the index
// cannot be written in the meantime.
const (
	maxPatterns = 256 // of an annotation
	maxPattern  = 253 // bytes of one: no name is longer
	maxGlobs    = 32  // of the patterns
	maxStars    = 4   // in one
	// maxValue is how many bytes an annotation may have. No list of valid patterns without repeats is longer.
	maxValue = maxPatterns * (len("configmap/,") + maxPattern)
	// maxComparisons bounds what the globs of a workload cost (see dependency.Pattern) times its sources.
	maxComparisons = 20_000
)

// keep returns as much of the value of an annotation as is needed to parse it, or to see that it is too long. The
// rest need not be in memory.
func keep(value string) string {
	if len(value) > maxValue {
		return strings.Clone(value[:maxValue+1])
	}
	return value
}

// parsed caches the lists of patterns that take long to parse, because they are long or have regular expressions: the list
// of a namespace is parsed for each of its workloads, and the list of a workload whenever the workload or one of its
// sources changes.
var parsed = lru.New(64)

// parsePatterns parses a comma-separated list of configmap/NAME and secret/NAME, where
// NAME may be a glob with *. The patterns must not be changed.
func parsePatterns(value string) ([]dependency.Pattern, error) {
	parse := func() (list, error) { return listOf(value, parsePattern) }
	if len(value) < 256 {
		l, err := parse()
		return l.patterns, err
	}
	l, err := remembered(listKey{text: value}, parse)
	return l.patterns, err
}

// list is what a list of sources names. Its patterns must not be changed.
type list struct {
	patterns []dependency.Pattern
	// impossible is the first part that can match no name of an object; empty: each can.
	impossible string
}

// listKey identifies a list: the same text is another list as one of regular expressions for names of a kind.
type listKey struct {
	regexps dependency.SourceKind // empty: the parts name their kinds
	text    string
}

// remembered returns what parse returned for a list before, if it is one of the last.
func remembered(key listKey, parse func() (list, error)) (list, error) {
	type result struct {
		list
		err error
	}
	if known, found := parsed.Get(key); found {
		r := known.(result)
		return r.list, r.err
	}
	var r result
	r.list, r.err = parse()
	parsed.Add(key, r)
	return r.list, r.err
}

// listOf parses the parts of a comma-separated list. A part without a pattern names nothing. It counts as a source as well,
// because it costs as much.
func listOf(value string, parse func(part string) (dependency.Pattern, error)) (out list, err error) {
	if len(value) > maxValue {
		return list{}, fmt.Errorf("must not have more than %d bytes", maxValue)
	}
	known, globs := map[string]bool{}, 0
	for part := range listed(value) {
		if known[part] {
			continue
		}
		if known[part] = true; len(known) > maxPatterns {
			return list{}, fmt.Errorf("must not name more than %d sources", maxPatterns)
		}
		p, err := parse(part)
		switch {
		case err != nil:
			return list{}, err
		case p.Name == "":
			out.impossible = cmp.Or(out.impossible, part)
			continue
		case slices.Contains(out.patterns, p):
			continue
		case p.Glob():
			if globs++; globs > maxGlobs {
				return list{}, fmt.Errorf("must not have more than %d patterns", maxGlobs)
			}
		}
		out.patterns = append(out.patterns, p)
	}
	return out, nil
}

func parsePattern(part string) (p dependency.Pattern, err error) {
	kind, name, found := strings.Cut(part, "/")
	if !found || name == "" {
		return p, fmt.Errorf("%q is not of the form configmap/NAME, secret/NAME or secretproviderclass/NAME", abbreviate(part))
	}
	if p.Kind, err = parseKind(kind); err != nil {
		return p, err
	}
	if !PossibleName(name) {
		return p, fmt.Errorf("%q is neither a valid object name nor a pattern of valid names, in which only * is a wildcard", abbreviate(name))
	}
	if strings.Count(name, "*") > maxStars {
		return p, fmt.Errorf("%q must not have more than %d *", abbreviate(name), maxStars)
	}
	p.Name = name
	return p, nil
}

// PossibleName reports whether an object can have a name, or a name that a glob matches. A * counts as a
// letter, because no other character is valid in more places of a name.
func PossibleName(name string) bool {
	return len(name) <= maxPattern && len(validation.IsDNS1123Subdomain(strings.ReplaceAll(name, "*", "a"))) == 0
}

// listed yields the parts of a comma-separated list, trimmed, without empty ones.
func listed(value string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for part := range strings.SplitSeq(value, ",") {
			if part = strings.TrimSpace(part); part != "" && !yield(part) {
				return
			}
		}
	}
}
