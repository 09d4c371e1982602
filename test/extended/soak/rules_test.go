// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package soak

import (
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

// triggers reports whether a change of a source restarts a managed workload.
func (r rules) triggers(variant int, source string) bool {
	switch {
	case !r.managed(), matches(r.exclude, source):
		return false
	case matches(r.sources, source):
		return true
	case r.mode == "listed" || useOf(variant, source) == nil:
		return false
	default:
		return r.mode != "matched" || slices.Contains(matchedSources, source)
	}
}

// counts reports whether a source counts for the state of a workload.
func (r rules) counts(variant int, source string) bool {
	return r.triggers(variant, source) || useOf(variant, source) != nil && !matches(r.exclude, source)
}

func matches(patterns, source string) bool {
	for pattern := range strings.SplitSeq(patterns, ",") {
		if found, err := path.Match(pattern, strings.ToLower(kindOf(source))+"/"+source); err == nil && found {
			return true
		}
	}
	return false
}
