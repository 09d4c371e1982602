package simulation

import "time"

// The annotations, as docs/annotations.md has them.
const (
	reloadAnnotation      = "configdep.io/reload"
	sourcesAnnotation     = "configdep.io/sources"
	excludeAnnotation     = "configdep.io/exclude"
	kindsAnnotation       = "configdep.io/kinds"
	liveAnnotation        = "configdep.io/live-volumes"
	settleAnnotation      = "configdep.io/settle"
	minIntervalAnnotation = "configdep.io/min-interval"
	ignoreAnnotation      = "configdep.io/ignore"
	matchAnnotation       = "configdep.io/match"

	hashAnnotation       = "configdep.io/config-hash"
	appliedAnnotation    = "configdep.io/applied-sources"
	lastReloadAnnotation = "configdep.io/last-reload"
	reloadedAtAnnotation = "configdep.io/reloaded-at"
)

// sourceSet is a set of sources.
type sourceSet uint8

func (s sourceSet) has(source int) bool { return s&(1<<source) != 0 }

// meaning is what a value of an annotation says.
type meaning struct {
	mode    string
	sources sourceSet
	glob    bool
	yes     bool
	wait    time.Duration
}

// vocabulary has every value that the simulation gives to an annotation. All others are
// invalid.
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
		"configmap/c0-other": {},
	},
	settleAnnotation:      {"0": {}, "500ms": {wait: 500 * time.Millisecond}, "1s": {wait: time.Second}, "5s": {wait: 5 * time.Second}},
	minIntervalAnnotation: {"0": {}, "10s": {wait: 10 * time.Second}, "1m": {wait: time.Minute}},
}

// rules are the policy of a workload.
type rules struct {
	mode    string
	invalid bool
	// exclude, extra (named by sources) and kinds are sets of sources.
	exclude, extra, kinds sourceSet
	glob                  bool // extra comes from a glob
	live                  bool
	settle, minInterval   time.Duration
}

// managed tells whether a controller may act.
func (r rules) managed() bool { return r.mode != "off" && !r.invalid }

// rulesOf reads the annotations of a workload and of its namespace.
func rulesOf(workload, namespace map[string]string, defaultMode string) rules {
	r := rules{mode: defaultMode, kinds: 0b1111, settle: time.Second}
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
	if r.mode == "off" && !r.invalid {
		return r
	}
	read(excludeAnnotation, func(m meaning) { r.exclude = m.sources })
	read(kindsAnnotation, func(m meaning) { r.kinds = m.sources })
	read(liveAnnotation, func(m meaning) { r.live = m.yes })
	read(sourcesAnnotation, func(m meaning) { r.extra, r.glob = m.sources, m.glob })
	read(settleAnnotation, func(m meaning) { r.settle = m.wait })
	read(minIntervalAnnotation, func(m meaning) { r.minInterval = m.wait })
	return r
}

// scope is what counts of one source: which keys, and whether those are all that it has.
type scope struct {
	keys     keySet
	all      bool
	annotted bool // nothing reads it: the policy alone names it
}

// counts tells whether a change of the source can restart the workload.
func (s scope) counts() bool { return s.keys != 0 }

// mark is what the annotations of a source say of it. Those of an absent one say nothing.
type mark struct{ present, ignored, match bool }

// scopes returns what counts of each source.
func (r rules) scopes(variant int, marks *[sourceCount]mark) (out [sourceCount]scope) {
	for s := range out {
		var read, kept keySet // kept: by a running container, as it was
		var all, keptAll bool
		for _, u := range variants[variant] {
			if u.source != s {
				continue
			}
			whole := u.how == envFrom || u.how == volume || u.how == projected
			read, all = read|u.reads(), all || whole
			if !u.live() {
				kept, keptAll = kept|u.reads(), keptAll || whole
			}
		}
		m := marks[s]
		named := r.extra.has(s)
		switch {
		case m.present && m.ignored, r.exclude.has(s):
			continue
		case named:
		case r.mode == "listed",
			r.mode == "matched" && (!m.present || !m.match),
			!r.kinds.has(s),
			read == 0,
			r.live && kept == 0:
			continue
		}
		switch {
		case read == 0 || r.live && kept == 0:
			out[s] = scope{keys: allKeys, all: true, annotted: true}
		case r.live:
			out[s] = scope{keys: kept, all: keptAll}
		default:
			out[s] = scope{keys: read, all: all}
		}
	}
	return out
}
