// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"bytes"
	"slices"
	"strings"

	"github.com/configdep/configdep/pkg/dependency"
)

// With Policy.IgnoreCreated and IgnoreDeleted, a source that appears where there was none, or disappears, is no change.
// But what disappeared and comes back with other content is one: so its entry stays in the record while it is absent.

// keepsEntry reports whether the entry of the record stands for a tracked source that is absent, or for a SecretProviderClass
// of which it is not known that pods have to read other content than what is recorded.
func (u *trackedSource) keepsEntry() bool {
	if u.isClass() {
		return u.keepsMounted()
	}
	return u.counted != nil && u.counted.source == nil && u.of.Policy.IgnoreDeleted && u.of.knows(u)
}

// appeared reports whether a tracked source was absent when the record was made, and its appearance is no change.
func (e *Evaluation) appeared(u *trackedSource) bool { return u.appearedSince(e.Record.Sources[u.id]) }

// appearedSince is appeared for an entry of any record.
func (u *trackedSource) appearedSince(entry string) bool {
	if u.counted == nil || u.counted.source == nil || !u.of.Policy.IgnoreCreated || u.isClass() {
		return false
	}
	if !strings.HasSuffix(entry, "."+noKeys) { // like most entries, for which no digest is needed
		return false
	}
	if u.isCurrent(entry) { // it looks as if it was absent, because it has none of the keys that count
		return false
	}
	absent := u.of.digest(dependency.AppendContent(nil, &u.counted.Reference, nil))[:16]
	return strings.HasPrefix(entry, u.summary().scope+"."+absent+".")
}

// ignored reports whether nothing has happened to a tracked source, as far as this process remembers, but that it
// appeared, disappeared, or came back as it was, and that is no change. What the record says to the contrary counts. If
// something else happened before that, earlier is the last change that is one; nil: it is the last that happened.
func (e *Evaluation) ignored(u *trackedSource) (earlier *dependency.Change, ignored bool) {
	p := &e.Policy
	switch {
	case u.isClass(): // neither its appearance nor its disappearance is a change for any policy
		return nil, u.counted.source == nil
	case !p.IgnoreCreated && !p.IgnoreDeleted, e.differs(u), e.recordedMixed(u):
		return nil, false
	case u.counted.source == nil:
		return nil, p.IgnoreDeleted
	}
	r, key := &u.counted.Reference, e.sourceKey(&u.counted.Reference)
	same := func(s *dependency.Source) bool {
		return bytes.Equal(u.counted.content, dependency.AppendContent(nil, r, s))
	}
	next, gaps := u.counted.source.Change, 0 // gaps: how often it was absent between two contents
	past := e.graph.Past(key)
	for _, was := range slices.Backward(past) {
		gap := was.Until != next
		if gap && e.appeared(u) { // what it was before it was absent, the pods have not read
			return nil, true
		}
		if !same(was.Source) {
			if gaps > 0 && p.IgnoreDeleted {
				earlier = &next
			}
			return earlier, false
		}
		if gap {
			gaps++
		}
		next = was.Change
	}
	first, known := e.graph.First(key) // if known, not nil, because the source exists
	_, _, times, _ := e.graph.ChangedSince(key, dependency.Moment{})
	switch {
	case !known, times > 1+2*gaps: // other contents have been forgotten
		return nil, false
	case len(first.Keys) == 0: // it was absent when this process began to look
		return nil, p.IgnoreCreated && (gaps == 0 || p.IgnoreDeleted)
	default:
		return nil, same(first) && gaps > 0 && p.IgnoreDeleted
	}
}

// maxExpanded limits the sources that are tracked each by itself instead of by the globs that name them.
const maxExpanded = 64

// expand chooses the globs whose sources are tracked each by itself, because it is no change if one of them appears, nor if
// one disappears; of a glob only the sum of all that it names is known. It returns names for these, with those of sources
// that the record remembers. A glob that names too many stays as it is: then both are changes.
func (e *Evaluation) expand(globs []trackedSource) (names []dependency.Pattern) {
	if !e.Policy.IgnoreCreated || !e.Policy.IgnoreDeleted {
		return nil
	}
	for i := range globs {
		u := &globs[i]
		m := e.graph.Matched(e.Workload.Namespace, *u.glob, e.Policy.Exclude, nil)
		if len(names)+m.Count > maxExpanded {
			continue
		}
		u.expanded = true
		for _, name := range m.Names() {
			names = append(names, dependency.Pattern{Kind: u.glob.Kind, Name: name})
		}
		for id := range e.Record.Sources {
			name, found := strings.CutPrefix(id, string(u.glob.Kind)+"/")
			if p := (dependency.Pattern{Kind: u.glob.Kind, Name: name}); found && len(names) < maxExpanded && !p.Glob() && m.Has(name) &&
				e.graph.Source(dependency.SourceKey{Kind: p.Kind, Namespace: e.Workload.Namespace, Name: name}) == nil {
				names = append(names, p)
			}
		}
	}
	return names
}
