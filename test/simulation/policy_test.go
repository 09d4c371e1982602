// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"maps"
	"slices"
	"time"
)

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
	other   bool // it names a source that no history creates
	yes     bool
	inPlace bool
	agent   bool
	wait    time.Duration
	order   int
}

// vocabulary contains every valid value that the simulation sets. All others are invalid.
var vocabulary = map[string]map[string]meaning{
	reloadAnnotation: {"auto": {mode: "auto"}, "matched": {mode: "matched"}, "listed": {mode: "listed"}, "off": {mode: "off"}},
	excludeAnnotation: {
		"configmap/c0":           {sources: 0b0001},
		"secret/*":               {sources: 0b101100},
		"configmap/c1,secret/s0": {sources: 0b0110},
	},
	kindsAnnotation: {"configmap": {sources: 0b010011}, "secret": {sources: 0b101100}, "secretproviderclass": {sources: 1 << class}},
	liveAnnotation:  {"true": {yes: true}, "false": {}},
	sourcesAnnotation: {
		"configmap/c*":       {sources: 0b010011},
		"secret/s1":          {sources: 0b1000},
		"secret/s*":          {sources: 0b101100},
		"configmap/c1":       {sources: 0b0010},
		"configmap/c0-other": {other: true},

		"secretproviderclass/k*": {sources: 1 << class},
	},
	settleAnnotation:      {"0": {}, "500ms": {wait: 500 * time.Millisecond}, "1s": {wait: time.Second}, "5s": {wait: 5 * time.Second}},
	minIntervalAnnotation: {"0": {}, "10s": {wait: 10 * time.Second}, "1m": {wait: time.Minute}},
	windowsAnnotation:     {aMinuteInFive: {}},
	orderAnnotation:       {"-1": {order: -1}, "0": {}, "1": {order: 1}, "2": {order: 2}},
	approvalAnnotation:    {"required": {}},
	withinAnnotation:      {"20s": {}, "2m": {}},
	holdAnnotation:        {"INC-4711": {}},
	configMapsAnnotation: {
		"c2":      {sources: 0b010000},
		"c0,c2":   {sources: 0b010001},
		"nope,c2": {sources: 0b010000},
		"nope":    {},
		"C0,c1":   {sources: 0b0010, yes: true}, // yes: one of them is impossible
		"c1 c2":   {yes: true},
	},
	secretsAnnotation:  {"s2": {sources: 0b100000}, "s0, s2": {sources: 0b100100}, "nope": {}, "S0": {yes: true}},
	strategyAnnotation: {"annotation": {}, "env-var": {}, "recreate": {yes: true}, "in-place": {inPlace: true}, "agent": {agent: true}},
}

// lists are the lists of names, and no list.
var lists = map[string][]string{
	configMapsAnnotation: append(slices.Sorted(maps.Keys(vocabulary[configMapsAnnotation])), ""),
	secretsAnnotation:    append(slices.Sorted(maps.Keys(vocabulary[secretsAnnotation])), ""),
}

// rules are the policy of a workload.
type rules struct {
	mode    string
	invalid bool
	// exclude, extra (named by sources) and kinds are sets of sources.
	exclude, extra, kinds sourceSet
	lists                 sourceSet // those that lists of another tool name, of which all keys count
	listed                string    // all that these lists name
	remark                bool      // one of the names is impossible
	live, other           bool
	recreate, inPlace     bool
	agent                 bool // nothing restarts it
	settle, minInterval   time.Duration
	windows, hold         bool
	order                 int
	approval              bool
}

// managed reports whether a controller may act.
func (r *rules) managed() bool { return r.mode != "off" && !r.invalid }

// rulesOf reads the annotations of a workload and of its namespace.
func rulesOf(workload, namespace map[string]string, server defaults) rules {
	r := rules{mode: server.Mode, kinds: 0b1111111, settle: time.Second}
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
	r.readLists(workload)
	if r.mode == "off" && !r.invalid {
		return r
	}
	read(excludeAnnotation, func(m meaning) { r.exclude = m.sources })
	read(kindsAnnotation, func(m meaning) { r.kinds = m.sources })
	read(liveAnnotation, func(m meaning) { r.live = m.yes })
	read(sourcesAnnotation, func(m meaning) { r.extra, r.other = m.sources, m.other })
	read(settleAnnotation, func(m meaning) { r.settle = m.wait })
	read(windowsAnnotation, func(meaning) { r.windows = true })
	read(holdAnnotation, func(meaning) { r.hold = true })
	read(orderAnnotation, func(m meaning) { r.order = m.order })
	read(approvalAnnotation, func(meaning) { r.approval = true })
	read(withinAnnotation, func(meaning) {})
	read(minIntervalAnnotation, func(m meaning) { r.minInterval = m.wait })
	read(strategyAnnotation, func(m meaning) { r.recreate, r.inPlace, r.agent = m.yes, m.inPlace, m.agent })
	return r
}

// mark contains the annotations of a source. An absent source has none.
type mark struct{ present, ignored, match bool }

// scope is what counts of a source.
type scope struct {
	counts   bool // for the state
	triggers bool // a change restarts the workload
	goes     bool // it is absent, and may have triggered when it was there
	whole    bool // all keys count, for each container, because the policy names what none reads
	kept     bool // content that containers see without a restart does not count
}

// scope returns what counts of a source for a workload with a template.
func (r *rules) scope(variant, source int, m mark) scope {
	if m.present && m.ignored || r.exclude.has(source) {
		return scope{}
	}
	var read, kept bool
	if source == class { // only of workloads that mount it
		read, kept = true, false
	}
	for _, u := range allUses[variant] {
		if u.source == source {
			read, kept = true, kept || !u.live()
		}
	}
	out := scope{counts: true, kept: r.live}
	switch {
	case r.extra.has(source), r.lists.has(source):
		out.whole = !read || r.live && !kept || r.lists.has(source)
	case r.mode == "matched" && !m.present:
		out.goes = true
		return out
	case r.mode == "listed", r.mode == "matched" && !m.match, !r.kinds.has(source), !read, r.live && !kept:
		return out
	}
	out.triggers = true
	return out
}

// keys returns the keys that count of what a container of a variant reads, as files or as variables.
func (s *scope) keys(variant, container, source int, files bool) (keys keySet) {
	switch {
	case !s.counts, container >= len(variants[variant]):
		return 0
	case s.whole && variants[variant][container].role == initContainer:
		return 0
	case s.whole:
		return allKeys
	case source == class && files && !s.kept && container == len(variants[variant])-1:
		return 1
	}
	for _, u := range variants[variant][container].uses {
		if u.source == source && u.mounted() == files && (!s.kept || !u.live()) {
			keys |= u.reads()
		}
	}
	return keys
}

// differ reports whether two contents look different, by some keys.
func differ(keys keySet, a, b content) bool {
	for k := range a {
		if keys.has(k) && a[k] != b[k] {
			return true
		}
	}
	return false
}
