// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package simulation

import "time"

// The annotations, as documented in docs/annotations.md.
const (
	reloadAnnotation      = "configdep.io/reload"
	sourcesAnnotation     = "configdep.io/sources"
	excludeAnnotation     = "configdep.io/exclude"
	kindsAnnotation       = "configdep.io/kinds"
	liveAnnotation        = "configdep.io/live-volumes"
	settleAnnotation      = "configdep.io/settle"
	minIntervalAnnotation = "configdep.io/min-interval"
	strategyAnnotation    = "configdep.io/strategy"
	ignoreAnnotation      = "configdep.io/ignore"
	matchAnnotation       = "configdep.io/match"

	hashAnnotation       = "configdep.io/config-hash"
	appliedAnnotation    = "configdep.io/applied-sources"
	lastReloadAnnotation = "configdep.io/last-reload"
	reloadedAtAnnotation = "configdep.io/reloaded-at"
	recreatingAnnotation = "configdep.io/recreating"

	// On pods that are restarted in place.
	restartAnnotation    = "configdep.io/restart"
	restartingAnnotation = "configdep.io/restarting"
)

// sourceSet is a set of sources.
type sourceSet uint8

func (s sourceSet) has(source int) bool { return s&(1<<source) != 0 }

// meaning is the meaning of an annotation's value.
type meaning struct {
	mode    string
	sources sourceSet
	glob    bool
	other   bool // it names a source that no history creates
	yes     bool
	inPlace bool
	agent   bool
	wait    time.Duration
}

// vocabulary contains every valid value that the simulation sets. All others are invalid.
var vocabulary = map[string]map[string]meaning{
	reloadAnnotation: {"auto": {mode: "auto"}, "matched": {mode: "matched"}, "listed": {mode: "listed"}, "off": {mode: "off"}},
	excludeAnnotation: {
		"configmap/c0":           {sources: 0b0001},
		"secret/*":               {sources: 0b1100},
		"configmap/c1,secret/s0": {sources: 0b0110},
	},
	kindsAnnotation: {"configmap": {sources: 0b0011}, "secret": {sources: 0b1100}},
	liveAnnotation:  {"true": {yes: true}, "false": {}},
	sourcesAnnotation: {
		"configmap/c*":       {sources: 0b0011, glob: true},
		"secret/s1":          {sources: 0b1000},
		"secret/s?":          {sources: 0b1100, glob: true},
		"configmap/c1":       {sources: 0b0010},
		"configmap/c0-other": {other: true},
	},
	settleAnnotation:      {"0": {}, "500ms": {wait: 500 * time.Millisecond}, "1s": {wait: time.Second}, "5s": {wait: 5 * time.Second}},
	minIntervalAnnotation: {"0": {}, "10s": {wait: 10 * time.Second}, "1m": {wait: time.Minute}},
	strategyAnnotation:    {"annotation": {}, "recreate": {yes: true}, "in-place": {inPlace: true}, "agent": {agent: true}},
}

// rules are the policy of a workload.
type rules struct {
	mode    string // the broadest, if there are several
	invalid bool
	// byKind: annotations of other tools declare a mode for sources of each kind, in modes.
	byKind bool
	modes  [2]string // of ConfigMaps, and of Secrets
	// whole are the sources that annotations of other tools name: all their keys count. If pattern, a regular expression
	// names them.
	whole   sourceSet
	pattern bool
	// ignores: sources that appear or disappear are no change.
	ignores bool
	pause   time.Duration
	// exclude, extra (named by sources) and kinds are sets of sources.
	exclude, extra, kinds sourceSet
	glob                  bool // extra comes from a glob
	other                 bool // extra names another source as well
	live                  bool
	recreate, inPlace     bool
	agent                 bool // nothing restarts it
	settle, minInterval   time.Duration
}

// managed reports whether a controller may act.
func (r rules) managed() bool { return r.mode != "off" && !r.invalid }

// opted reports whether a controller may act, or could without an invalid annotation: then the content of that
// time is adopted, not the content when the annotation is corrected.
func (r rules) opted() bool { return r.mode != "off" || r.invalid }

// counting returns the rules for hashes: those of mode auto if the workload is not managed.
func (r rules) counting() rules {
	if r.mode == "off" {
		r.mode = "auto"
	}
	return r
}

// rulesOf reads the annotations of a workload and of its namespace.
func rulesOf(workload, namespace map[string]string, server defaults) rules {
	r := rules{mode: server.Mode, kinds: 0b1111, settle: time.Second}
	read := func(annotation string, apply func(meaning)) {
		text, found := workload[annotation]
		if !found {
			text, found = namespace[annotation]
		}
		if !found {
			return
		}
		m, valid := vocabulary[annotation][text]
		if !valid {
			r.invalid = true
			return
		}
		apply(m)
	}
	read(reloadAnnotation, func(m meaning) { r.mode = m.mode })
	var declared foreign
	if isForeign(workload) || server.AutoReloadAll {
		declared = r.readForeign(workload, namespace, server)
	}
	if r.mode == "off" && !r.invalid {
		return r
	}
	read(excludeAnnotation, func(m meaning) { r.exclude = m.sources })
	r.exclude |= declared.exclude
	r.whole, r.pattern, r.pause = declared.names.sources, declared.names.glob, declared.pause
	read(kindsAnnotation, func(m meaning) { r.kinds = m.sources })
	read(liveAnnotation, func(m meaning) { r.live = m.yes })
	read(sourcesAnnotation, func(m meaning) { r.extra, r.glob, r.other = m.sources, m.glob, m.other })
	if r.ignores { // the sources that a glob names count each by itself
		r.pattern, r.glob = r.pattern || r.glob, false
	}
	r.glob = r.glob || r.pattern && !r.ignores
	read(settleAnnotation, func(m meaning) { r.settle = m.wait })
	read(minIntervalAnnotation, func(m meaning) { r.minInterval = m.wait })
	read(strategyAnnotation, func(m meaning) { r.recreate, r.inPlace, r.agent = m.yes, m.inPlace, m.agent })
	return r
}

// scope contains what counts of one source: which keys, and whether those are all its keys.
type scope struct {
	keys     keySet
	all      bool
	annotted bool // no container reads it: only the policy names it
	// files and variables are the keys of a ConfigMap that containers see in that way.
	files, variables keySet
	kept             bool // content that containers see without a restart does not count
	ignores          bool // that it appears or disappears is no change
}

// counts reports whether a change of the source can restart the workload.
func (s scope) counts() bool { return s.keys != 0 }

// same reports whether the same keys count, and are seen in the same way.
func (s scope) same(o scope) bool {
	return s.keys == o.keys && s.all == o.all && s.files == o.files && s.variables == o.variables
}

// seen returns a value as containers see it: variables do not see binaryData.
func (s scope) seen(source, key int, v value) value {
	if isBinary(source, v) && !s.files.has(key) {
		return 0
	}
	return v
}

// allows reports whether a value looks the same as one of a set.
func (s scope) allows(source, key int, set values, v value) bool {
	for u := range value(valueCount + 1) {
		if set.has(u) && s.seen(source, key, u) == s.seen(source, key, v) {
			return true
		}
	}
	return false
}

// differs reports whether any value of a set looks different from a value.
func (s scope) differs(source, key int, set values, v value) bool {
	if s.ignores && set&ofAbsent != 0 && set&ofLacking == 0 {
		set &^= only(0)
	}
	for u := range value(valueCount + 1) {
		if set.has(u) && s.seen(source, key, u) != s.seen(source, key, v) {
			return true
		}
	}
	return false
}

// mark contains the annotations of a source. An absent source has none.
type mark struct{ present, ignored, match bool }

// scopes returns the scope of each source.
func (r rules) scopes(variant int, marks *[sourceCount]mark) (out [sourceCount]scope) {
	for s := range out {
		read, kept := scopeOf(variant, s, false), scopeOf(variant, s, true)
		m := marks[s]
		named := r.extra.has(s) || r.whole.has(s)
		mode := r.modeOf(s)
		switch {
		case m.present && m.ignored, r.exclude.has(s):
			continue
		case named:
		case mode == "listed", r.byKind && (mode == "off" || mode == ""),
			mode == "matched" && (!m.present || !m.match),
			!r.kinds.has(s),
			read.keys == 0,
			r.live && kept.keys == 0:
			continue
		}
		switch {
		case read.keys == 0 || r.live && kept.keys == 0 || r.whole.has(s):
			out[s] = scope{keys: allKeys, all: true, annotted: true}
			if !isSecret(s) {
				out[s].files = allKeys
			}
		case r.live:
			out[s] = kept
		default:
			out[s] = read
		}
		out[s].ignores = r.ignores
	}
	return out
}

// scopeOf returns what the containers of a variant read of a source; with kept, only what they keep until they are
// restarted.
func scopeOf(variant, source int, kept bool) (out scope) {
	out.kept = kept
	for _, u := range allUses[variant] {
		if u.source != source || kept && u.live() {
			continue
		}
		out.keys, out.all = out.keys|u.reads(), out.all || u.whole()
		switch {
		case isSecret(source): // there is no binaryData
		case u.mounted():
			out.files |= u.reads()
		default:
			out.variables |= u.reads()
		}
	}
	return out
}

// of returns the keys of a scope that one container of a variant reads.
func (s scope) of(variant, container, source int) (keys keySet) {
	if s.annotted {
		return allKeys
	}
	for _, u := range variants[variant][container].uses {
		if u.source == source && (!s.kept || !u.live()) {
			keys |= u.reads()
		}
	}
	return keys & s.keys
}
