// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// rules are the rules in annotations about which sources restart a workload.
type rules struct {
	mode             string
	sources, exclude string // comma-separated patterns
}

// rulesOf returns the rules of a workload, whose namespace may set a mode for it.
func rulesOf(annotations map[string]string, namespace string) rules {
	r := rules{mode: namespace, sources: annotations["configdep.io/sources"], exclude: annotations["configdep.io/exclude"]}
	if own, found := annotations[reloadAnnotation]; found {
		r.mode = own
	}
	if r.mode == "" {
		r.mode = "off"
	}
	return r
}

// managed reports whether the workload is restarted automatically.
func (r rules) managed() bool { return r.mode != "off" }

// counts reports whether a change of a source restarts the workload or, if it has opted out, would in mode auto.
func (r rules) counts(variant int, source string) bool {
	switch {
	case matches(r.exclude, source):
		return false
	case matches(r.sources, source):
		return true
	case r.mode == "listed" || useOf(variant, source) == nil:
		return false
	default:
		return r.mode != "matched" || slices.Contains(matchedSources, source)
	}
}

// counted returns the sources that count.
func (r rules) counted(variant int) (names []string) {
	for _, name := range sourceNames {
		if r.counts(variant, name) {
			names = append(names, name)
		}
	}
	return names
}

// unit returns the part of a record that contains a source: an entry of its own, with the keys that are read, or
// the entry of a glob that matches it, without sources that count separately or do not count.
func (r rules) unit(variant int, source string) string {
	if !r.onlyGlob(variant, source) {
		return scopeOf(variant, source)
	}
	var apart []string
	for _, name := range sourceNames {
		if !r.onlyGlob(variant, name) || matches(r.exclude, name) {
			apart = append(apart, name)
		}
	}
	return fmt.Sprintf("in %s without %v", r.sources, apart)
}

// onlyGlob reports whether only a glob can match a source.
func (r rules) onlyGlob(variant int, source string) bool {
	return useOf(variant, source) == nil && !slices.Contains(strings.Split(r.sources, ","), patternOf(source))
}

// patternOf returns the pattern that names one source.
func patternOf(source string) string { return strings.ToLower(kindOf(source)) + "/" + source }

func matches(patterns, source string) bool {
	for pattern := range strings.SplitSeq(patterns, ",") {
		if found, err := path.Match(pattern, patternOf(source)); err == nil && found {
			return true
		}
	}
	return false
}
