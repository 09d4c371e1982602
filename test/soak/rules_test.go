// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// rules are what annotations say of which sources restart a workload.
type rules struct {
	mode             string
	sources, exclude string // comma lists of patterns
}

// rulesOf returns the rules of a workload, whose namespace may declare a mode for it.
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

// managed reports whether the workload is restarted by itself.
func (r rules) managed() bool { return r.mode != "off" }

// counts reports whether a change of a source restarts the workload; when it has opted out,
// whether it would in mode auto.
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

// unit returns what a record remembers a source in, and what of it: in an entry of its own, by the
// keys that are read, or in that of a glob that names it, which has nothing of what counts on its
// own or does not count.
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

// onlyGlob reports whether nothing but a glob can name a source.
func (r rules) onlyGlob(variant int, source string) bool {
	return useOf(variant, source) == nil && !slices.Contains(strings.Split(r.sources, ","), patternOf(source))
}

// patternOf is the pattern that names one source.
func patternOf(source string) string { return strings.ToLower(kindOf(source)) + "/" + source }

func matches(patterns, source string) bool {
	for pattern := range strings.SplitSeq(patterns, ",") {
		if found, err := path.Match(pattern, patternOf(source)); err == nil && found {
			return true
		}
	}
	return false
}
