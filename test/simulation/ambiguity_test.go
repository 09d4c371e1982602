// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"slices"
	"strings"
	"time"
)

// recordDiffers reports whether a record has content of a source other than what a server sees.
func (o *oracle) recordDiffers(rec *recorded, scopes *[sourceCount]scope, s int, v *view) bool {
	if scopes[s].ignores && (!v.sources[s].present || rec.absentIn(s, &scopes[s])) {
		return false
	}
	for k, value := range v.sources[s].content {
		if scopes[s].keys.has(k) && scopes[s].seen(s, k, rec.contents[s][k]) != scopes[s].seen(s, k, value) {
			return true
		}
	}
	return false
}

// ambiguity returns why a restart that was not needed is allowed: the server has not seen the pods start, the
// record differs from the content, and times do not show that the pods came last.
func (o *oracle) ambiguity(r *request, d *workload, rules rules, marks [sourceCount]mark) string {
	rec, bare := o.remembered(&r.seen, &d.manifest)
	unseen := r.seen.unseen(d.truth.templated) || o.world.severalCounters()
	scopes := rules.scopes(d.template.variant, &marks)
	for s := range scopes {
		switch {
		case !scopes[s].ignores:
		case rules.pattern && rules.whole.has(s) && o.world.sources[s].gone != content{}:
			return "of a source that only a pattern names, nothing is remembered once it was deleted"
		case o.unsure(&scopes[s], s):
			return "a source was absent, and what is remembered of that cannot be compared"
		case o.world.sources[s].gone != content{} && rec != nil && rec.scopes[s].same(scopes[s]) && o.recordDiffers(rec, &scopes, s, &r.seen):
			return "a source that was absent has come back with other content than the record has"
		}
	}
	for s := range scopes {
		if changed := r.seen.sources[s].changed; d.kind == boat && scopes[s].counts() && d.truth.shown < changed && changed < d.truth.templated {
			return "pods were replaced after the change, but not for a change of the pod template"
		}
	}
	if saysLeft(d.annotations[hashAnnotation]) {
		return "the record says that pods are left which were to be evicted"
	}
	if d.truth.mixed {
		return "the pods were verified, and times do not show what they were started with"
	}
	if strings.Contains(d.annotations[hashAnnotation], ".mixed") && unseen {
		return "the record says that pods differ, and the server has not seen the template restored with it, or revisions cannot be compared"
	}
	if r.seen.begun < o.world.restored {
		return "etcd was restored, and the server has not read everything again: revisions cannot be compared until then"
	}
	if o.world.severalCounters() && !o.world.skews.right() {
		return "neither revisions nor times can be compared"
	}
	if o.world.severalCounters() && d.newest() != nil {
		for s := range scopes {
			switch {
			case !scopes[s].counts() || r.seen.sources[s].arrived.IsZero():
			case rec != nil && !rec.scopes[s].counts() && !r.seen.sources[s].present:
				return "revisions cannot be compared, and of a source that was deleted while unused only the deletion is known"
			case r.reload != nil:
				return "revisions cannot be compared, and a Reload does not look up times"
			case !seconds(d.newest().created).After(r.seen.sources[s].lastChanged):
				return "revisions cannot be compared, and the template is not younger than the content"
			}
		}
	}
	for s := range scopes {
		doubted := r.seen.sources[s].doubted
		if scopes[s].counts() && doubted > 0 && (doubted >= max(d.truth.templated, d.truth.recreated) || o.world.severalCounters()) {
			return "a source was written while everything was read again with another key"
		}
	}
	if t := r.seen.templates[d.slot]; t.remade && t.uid == d.uid && rec != nil && t.identity == d.template.identity() {
		return "the workload was deleted and created again while the server did not watch, and the age of its record is not known"
	}
	if t := r.seen.templates[d.slot]; t.guessed && t.uid == d.uid && t.identity == d.template.identity() {
		return "a Deployment was paused when it was listed, and it is not known whether its pods are of its template"
	}
	if t := r.seen.templates[d.slot]; t.uid == d.uid && t.identity == d.template.identity() && !o.world.skews.right() &&
		max(t.revision, t.startedBy) < d.truth.templated {
		return "a list shows the previous template, and no times that show another one in between: clocks are wrong"
	}
	if r.seen.strange[d.slot] && r.seen.kept[d.slot] == d.hash() {
		return "the record did not match the content when its key was replaced"
	}
	if r.reload != nil {
		if r.seen.key != o.world.key {
			return "a user has requested the restart, and the server has not read the key that replaced its own"
		}
		if len(r.server.streams[workloadStream(d.kind)].queue)+len(r.server.streams[namespaces].queue) > 0 {
			return "a user has requested the restart, and the server has not seen the current workload or namespace"
		}
	}
	// Without a valid mode, the default applies: in mode off, no pod is evicted.
	if r.seen.evicting(&d.manifest) && (d.superseded(rules) || rules.mode == "off") {
		return "pods were still to be evicted when the strategy was changed"
	}
	for _, rec := range []*recorded{rec, o.hashes[d.hash()]} { // with any key
		for s := range scopes {
			if rec != nil && rules.matches() && rec.scopes[s].counts() && !r.seen.sources[s].present {
				return "an absent source does not show whether it matches"
			}
		}
	}
	if rec == nil {
		for s := range scopes {
			switch changed := r.seen.sources[s].changed; {
			case !scopes[s].counts():
			case changed > max(d.truth.templated, d.truth.adopted):
				return "nothing is recorded, and a source has changed, although not in keys that count"
			case changed > d.truth.templated && r.seen.unseen(d.truth.adopted):
				return "nothing is recorded, and the server has not seen whether the workload had opted in before a source changed"
			case unseen && !r.seen.sources[s].arrived.IsZero() && (d.truth.cause != optedIn || changed > d.truth.adopted || r.seen.unseen(d.truth.adopted)):
				return "nothing is recorded, and the server has not seen what came first"
			}
		}
		return ""
	}
	for s, now := range o.world.marks() {
		if scopes[s].counts() && !rec.scopes[s].counts() && now != marks[s] && o.writtenByAnother(r) {
			return "the record of another server lacks a source whose mark this one has not seen"
		}
	}
	var lastChanged time.Time
	gone, differs, again := bare && (rules.glob || rules.other), false, false
	for s := range scopes {
		seen := &r.seen.sources[s]
		// If revisions cannot be compared, the server does not see either what came first when a template or a
		// policy has just made a source count.
		differ := bare || o.world.severalCounters() && !rec.scopes[s].same(scopes[s])
		for k := range seen.content {
			if scopes[s].keys.has(k) && rec.contents[s][k] != seen.content[k] {
				differ, gone = true, gone || scopes[s].seen(s, k, seen.content[k]) == 0
			}
		}
		gone = gone || scopes[s].counts() && (bare && mayHaveLostKeys(s, scopes[s], seen.content) || scopes[s].annotted && rules.glob)
		gone = gone || differ && scopes[s].counts() && scopes[s].keys&seen.undated != 0
		back := scopes[s].counts() && !differ && unseen && slices.Max(seen.witnessed[:]) > d.truth.adopted
		if back && (d.newest() == nil || !seconds(d.newest().created).After(seen.lastChanged)) {
			return "content has changed and changed back, and nothing shows whether the template came after that"
		}
		// The webhook may have adopted older content, and with several counters nothing shows that.
		adopted := seen.changed <= d.truth.adopted && !o.world.severalCounters() && !r.seen.unseen(d.truth.adopted)
		if !scopes[s].counts() || !differ || adopted {
			continue
		}
		differs = true
		again = again || seen.changed > max(d.truth.templated, d.truth.adopted)
		if seen.lastChanged.After(lastChanged) {
			lastChanged = seen.lastChanged
		}
	}
	switch {
	case differs && again:
		return "a source has changed before the pods started, and again after that, although not in keys that count"
	case !differs && (!bare || rec.scopes == scopes && rec.other == rules.other), !unseen:
		return ""
	case gone:
		return "the time at which a source or a key was removed is written nowhere"
	case r.reload != nil:
		return "the server has not seen what came first, and a Reload does not look up times"
	case d.newest() == nil, !seconds(d.newest().created).After(lastChanged):
		return "the template is not younger than the content, by its revision"
	case !d.templateWritten().After(lastChanged):
		return "the template is not younger than the content, by its managed fields"
	}
	return ""
}

// mayHaveLostKeys reports whether containers read all keys of a source, or one that they do not see.
func mayHaveLostKeys(source int, reads scope, c content) bool {
	for k, v := range c {
		if reads.keys == allKeys || reads.keys.has(k) && reads.seen(source, k, v) == 0 {
			return true
		}
	}
	return false
}

// writtenByAnother reports whether another server than the one that sends the request has written a workload.
func (o *oracle) writtenByAnother(r *request) bool {
	return slices.ContainsFunc(o.world.servers, func(s *server) bool { return s != r.server && s.written[r.slot] != confirmed{} })
}
