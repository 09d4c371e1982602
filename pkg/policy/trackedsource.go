// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"

	"github.com/configdep/configdep/pkg/dependency"
)

// trackedSource is what a record tracks with one entry: a source, or all sources that only a glob
// names, so that it is a change if one of them appears or disappears.
type trackedSource struct {
	of *Evaluation
	id string
	// counted is the source; nil: it is a glob. Then matched are the sources that it names, and others
	// are sources of the template that it also names but that do not belong to it.
	counted *counted
	glob    *dependency.Pattern
	matched *dependency.Matched
	others  []string
	// expanded: each source that the glob names is tracked instead.
	expanded bool

	// A cache that is valid as long as the graph stays the same; nil: not computed yet.
	cachedSummary *summary
	changed       *change
	start         *uint64
}

// summary is what a record contains about a tracked source.
type summary struct {
	scope  string // which keys count, and how they are seen
	digest string // what the pods read of them; empty: a glob that names nothing
	keys   string // stands for the names of those that there are
}

// counted is a source that counts.
type counted struct {
	dependency.Reference // narrowed to what counts
	source               *dependency.Source
	content              []byte   // what stands for what is read of it
	keys                 []string // these keys
	// A cache of lookups that is valid as long as the graph stays the same.
	known   bool
	written dependency.Moment // an upper bound of when what is read last changed
	last    dependency.Change // of the content
}

// lookUp completes what is known about a source.
func (e *Evaluation) lookUp(c *counted) *counted {
	switch {
	case c.known:
	case c.source != nil:
		c.written, c.last = c.source.LastWritten(&c.Reference), c.source.Change
	default:
		key := e.sourceKey(&c.Reference)
		c.written, c.last = e.graph.LastWritten(e.Workload.Namespace, &c.Reference), e.graph.LastChange(key)
		// It may have been deleted after the pods had started and before this process read their
		// template, or while another template did not name it.
		unused := e.graph.UnusedDeletion(key)
		if c.last.Version == 0 && (unused.Version > e.Workload.StartVersion || e.Workload.StartUnsure) {
			c.written, c.last = unused.Moment(), unused
		}
		if c.written == (dependency.Moment{}) { // it was not there when everything had been read, and perhaps before
			c.written.Version = e.since().Version
		}
	}
	c.known = true
	return c
}

// entry is the entry of the tracked source in a record.
func (u *trackedSource) entry() string {
	if u.keepsEntry() {
		return u.of.Record.Sources[u.id]
	}
	return u.ownEntry()
}

// ownEntry is the entry by which the current content is recorded.
func (u *trackedSource) ownEntry() string {
	s := u.summary()
	if s.digest == "" {
		return s.scope + "."
	}
	return s.scope + "." + s.digest + "." + s.keys
}

// isCurrent reports whether an entry matches the current content of the tracked source. It does not compare
// which keys exist: some of them may be visible to no container.
func (u *trackedSource) isCurrent(entry string) bool {
	own := u.entry()
	return entry[:strings.LastIndexByte(entry, '.')+1] == own[:strings.LastIndexByte(own, '.')+1]
}

// mixedEntry is the entry of the tracked source in a record if some pods were started with other
// content of it than others.
func (u *trackedSource) mixedEntry() string { return u.summary().scope + "." + mixed + "." }

func idOf(kind dependency.SourceKind, name string) string { return string(kind) + "/" + name }

// globs returns a tracked source for each glob of the policy.
func (e *Evaluation) globs() (globs []trackedSource) {
	for i := range e.Policy.Sources {
		if p := &e.Policy.Sources[i]; p.Glob() {
			globs = append(globs, trackedSource{of: e, id: idOf(p.Kind, p.Name), glob: p})
		}
	}
	return globs
}

// count adds a reference to the tracked sources. A source that only annotations name belongs, while it exists,
// to each glob that names it and is not expanded, and also has its own tracked source if it is named without a glob: so
// an edit of one of them changes nothing for the others. Sources that the template reads do not belong to the globs that
// also name them.
func (e *Evaluation) count(c *counted, n naming, globs []trackedSource) {
	if onlyAnnotated(&c.Reference) {
		whole := func(i int) bool { return !globs[i].expanded }
		if !n.byName && slices.ContainsFunc(n.globs, whole) && c.source != nil {
			return
		}
	} else {
		for _, i := range n.globs {
			globs[i].others = append(globs[i].others, c.Name)
		}
	}
	e.tracked = append(e.tracked, trackedSource{of: e, id: idOf(c.Kind, c.Name), counted: c})
}

// match finds out what a glob names.
func (e *Evaluation) match(u *trackedSource) {
	slices.Sort(u.others)
	u.matched = e.graph.Matched(e.Workload.Namespace, *u.glob, e.Policy.Exclude, u.others)
}

// summary returns what a record contains about the tracked source. It is computed on first use, because workloads that
// have not opted in have no record.
func (u *trackedSource) summary() *summary {
	if u.cachedSummary != nil {
		return u.cachedSummary
	}
	digest := u.of.digest
	switch {
	case u.counted != nil:
		u.cachedSummary = &summary{scopeOf(&u.counted.Reference), digest(u.counted.content)[:16], namesOf(digest, u.counted.keys)}
	case u.matched.Count == 0:
		u.cachedSummary = &summary{scope: u.of.Policy.globScope(u), keys: noKeys}
	default:
		u.cachedSummary = &summary{u.of.Policy.globScope(u), digest(u.matched.AppendContent(nil))[:16], strconv.Itoa(u.matched.Keys)}
	}
	return u.cachedSummary
}

func (e *Evaluation) digest(content []byte) string {
	sum := e.graph.Digester().ContentDigest(e.Workload.Namespace, content)
	return hex.EncodeToString(sum[:])
}

// namesOf stands for the names of keys.
func namesOf(digest func([]byte) string, names []string) string {
	switch {
	case len(names) == 0:
		return noKeys
	case len(names) > maxKeyNames:
		return manyKeys + digest([]byte("keys\x00" + strings.Join(names, "\x00")))[:8]
	}
	var out strings.Builder
	for _, name := range names {
		out.WriteString(digest([]byte("key\x00" + name))[:keyNameLength])
	}
	return out.String()
}

// What stands for the names of keys: noKeys, a digest of each, or of many manyKeys and a digest of all.
const (
	noKeys        = "0"
	manyKeys      = "-"
	maxKeyNames   = 8
	keyNameLength = 6
)

// hadOtherKeys reports whether there was, or may have been, a key that does not exist now when an entry was
// made.
func (u *trackedSource) hadOtherKeys(entry string) bool {
	_, known := u.keysThen(entry)
	return !known
}

// keysThen returns the keys that existed when an entry was made, if all of them still exist.
func (u *trackedSource) keysThen(entry string) (names []string, known bool) {
	before, keys := entry[strings.LastIndexByte(entry, '.')+1:], u.summary().keys
	switch {
	case before == noKeys:
		return nil, true
	case before == keys && u.counted != nil:
		return u.counted.keys, true
	case before == "", len(before)%keyNameLength != 0, len(keys)%keyNameLength != 0:
		return nil, false
	}
	for then := range slices.Chunk([]byte(before), keyNameLength) {
		at := 0
		for now := range slices.Chunk([]byte(keys), keyNameLength) {
			if bytes.Equal(now, then) {
				break
			}
			at++
		}
		if u.counted == nil || at == len(u.counted.keys) {
			return nil, false
		}
		names = append(names, u.counted.keys[at])
	}
	return names, true
}

// eachSource calls f for the existing sources of a tracked source, for a glob the last changed first, until f returns
// false.
func (u *trackedSource) eachSource(f func(*dependency.Source) bool) {
	switch {
	case u.glob != nil:
		u.matched.EachRecent(f)
	case u.counted.source != nil:
		f(u.counted.source)
	}
}

func onlyAnnotated(r *dependency.Reference) bool {
	return len(r.Uses) == 1 && r.Uses[0].Type == dependency.Annotation
}

// scopeOf identifies the keys that count and how containers see them, so that a change of the
// policy or the template is not mistaken for a change of content. Variables do not show the
// binaryData of a ConfigMap, and files do.
func scopeOf(r *dependency.Reference) string {
	variables, files := *r, *r
	variables.Uses, files.Uses = nil, nil
	for _, u := range r.Uses {
		switch {
		case !u.Reads():
		case r.Kind != dependency.ConfigMap, u.Type == dependency.Env, u.Type == dependency.EnvFrom:
			variables.Uses = append(variables.Uses, u)
		default:
			files.Uses = append(files.Uses, u)
		}
	}
	switch {
	case len(files.Uses) == 0:
		return keysOf(&variables)
	case len(variables.Uses) == 0:
		return "files-" + keysOf(&files)
	default:
		return keysOf(&variables) + "-files-" + keysOf(&files)
	}
}

// keysOf identifies the keys that a reference reads.
func keysOf(r *dependency.Reference) string {
	keys, all := r.Keys()
	if all {
		return "*"
	}
	return checksum(keys)
}

// checksum stands for names.
func checksum(names []string) string {
	h := fnv.New32a()
	for _, name := range names {
		fmt.Fprintf(h, "%s\x00", name)
	}
	return fmt.Sprintf("%08x", h.Sum32())
}

// globScope is the scope of a glob: what does not belong to it.
func (p *Policy) globScope(u *trackedSource) string {
	excluded := slices.Clone(u.others)
	for _, x := range p.Exclude {
		if x.Kind == u.glob.Kind {
			excluded = append(excluded, x.Name)
		}
	}
	slices.Sort(excluded)
	if ignored := u.matched.Ignored(); ignored != "" {
		excluded = append(excluded, ignored)
	}
	if excluded == nil {
		return "glob"
	}
	return "glob-" + checksum(excluded)
}
