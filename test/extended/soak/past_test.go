// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package soak

import "slices"

// past is the history of a source's content: nil while the source was absent.
type past []version

type version struct {
	from    int64 // the revision from which on the version was current
	content content
}

// between returns the versions from one revision to another, the latest last.
func (p past) between(from, to int64) past {
	begin := 0
	for i := range p {
		if p[i].from <= from {
			begin = i
		}
	}
	end := begin
	for end < len(p) && (end == begin || p[end].from <= to) {
		end++
	}
	return p[begin:end]
}

// reading returns what a pod that starts at a revision reads of a source, or what it would have read when it last
// could have started; found is false if it never could.
func (c *cell) reading(variant int, name string, at int64) (text string, found bool) {
	for _, v := range slices.Backward(c.past[name].between(0, at)) {
		if text, complete := readingOf(variant, name, v.content); complete {
			return text, true
		}
	}
	return "", false
}

// differed reports whether a source had other content between two revisions than it has now.
func (c *cell) differed(variant int, name string, from, to int64) bool {
	now, _ := readingOf(variant, name, c.sources[name])
	return slices.ContainsFunc(c.past[name].between(from, to), func(v version) bool {
		text, _ := readingOf(variant, name, v.content)
		return text != now
	})
}

// changed reports whether the content of a source changed after a revision, up to another.
func (c *cell) changed(variant int, name string, after, to int64) bool {
	versions := c.past[name].between(after, to)
	return slices.ContainsFunc(versions, func(v version) bool {
		before, _ := readingOf(variant, name, versions[0].content)
		text, _ := readingOf(variant, name, v.content)
		return text != before
	})
}
