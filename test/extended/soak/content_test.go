// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"maps"
	"slices"
	"strings"
)

// The sources of a cell, which workloads share.
var sourceNames = []string{"c0", "c1", "s0", "s1"}

// matchedSources have the match annotation. They are required where they are read: an optional one could be
// created without a workload in mode matched having known about it.
var matchedSources = []string{"c0", "s0"}

// kindOf returns the kind of a source, from the first letter of its name.
func kindOf(source string) string {
	if source[0] == 's' {
		return "Secret"
	}
	return "ConfigMap"
}

// content is the content of one source; nil: the source is absent.
type content map[string]string

// keyNames are the initial keys of sources. The last one is only read by workloads that read all keys.
var keyNames = []string{"a", "b", "z"}

// use is one use of a source by a pod template.
type use struct {
	how      string // env, envFrom, volume or projected
	source   string
	keys     []string // nil: all
	optional bool
}

// variants are the pod templates.
var variants = [][]use{
	{{how: "env", source: "c0", keys: []string{"a"}}, {how: "envFrom", source: "s0"}},
	{{how: "volume", source: "c0"}, {how: "envFrom", source: "c1", optional: true}},
	{{how: "volume", source: "s0", keys: []string{"a", "b"}}, {how: "env", source: "s1", keys: []string{"b"}, optional: true}, {how: "env", source: "c1", keys: []string{"b"}}},
	{{how: "projected", source: "c1", keys: []string{"a"}}, {how: "projected", source: "s1"}},
}

// consume returns what a pod that starts now reads of each source, and whether it starts at all. An absent optional source reads as an empty one,
// and a source that the template does not use counts as read completely, through the API.
func consume(variant int, sources map[string]content) (all map[string]string, starts bool) {
	all = map[string]string{}
	for _, name := range sourceNames {
		all[name] = text(sources[name], slices.Sorted(maps.Keys(sources[name])))
	}
	for _, u := range variants[variant] {
		read, complete := readingOf(variant, u.source, sources[u.source])
		if !complete {
			return nil, false
		}
		all[u.source] = read
	}
	return all, true
}

// readingOf returns what a pod that starts now reads of one source, and whether the source has everything that the
// pod requires.
func readingOf(variant int, name string, c content) (read string, complete bool) {
	keys := slices.Sorted(maps.Keys(c))
	u := useOf(variant, name)
	if u == nil {
		return text(c, keys), true
	}
	complete = c != nil || u.optional
	if u.keys != nil {
		keys = u.keys
	}
	for _, key := range u.keys {
		_, found := c[key]
		complete = complete && (found || u.optional)
	}
	return text(c, keys), complete
}

func text(c content, keys []string) string {
	var b strings.Builder
	for _, key := range keys {
		if value, found := c[key]; found {
			b.WriteString(" " + key + "=" + value)
		}
	}
	return b.String()
}

// useOf returns the use of a source by a template, or nil.
func useOf(variant int, source string) *use {
	for i := range variants[variant] {
		if u := &variants[variant][i]; u.source == source {
			return u
		}
	}
	return nil
}
