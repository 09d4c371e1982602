package soak

import (
	"maps"
	"slices"
	"strings"
)

// The sources of a cell. Workloads share them.
var sourceNames = []string{"c0", "c1", "s0", "s1"}

// kindOf returns the kind of a source, which its name begins with.
func kindOf(source string) string {
	if source[0] == 's' {
		return "Secret"
	}
	return "ConfigMap"
}

// content is that of one source; nil: the source is not there.
type content map[string]string

// keyNames are the keys that sources begin with. The last one is read only by those who
// read all.
var keyNames = []string{"a", "b", "z"}

// use is one way in which a pod template consumes a source.
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

// consume returns what a pod that starts now reads, and whether it starts at all. Of an
// optional source that is absent it reads the same as of an empty one.
func consume(uses []use, sources map[string]content) (read string, starts bool) {
	var b strings.Builder
	for _, u := range uses {
		c := sources[u.source]
		if c == nil && !u.optional {
			return "", false
		}
		keys := u.keys
		if keys == nil {
			keys = slices.Sorted(maps.Keys(c))
		}
		b.WriteString(u.source)
		for _, key := range keys {
			value, found := c[key]
			switch {
			case found:
				b.WriteString(" " + key + "=" + value)
			case !u.optional:
				return "", false
			}
		}
		b.WriteString(separator)
	}
	return b.String(), true
}

const separator = "; " // between what is read by one use and by the next

// adopt returns what was read, but for the uses that were not among earlier ones: of those,
// what is there now.
func adopt(read, now string, uses, earlier []use) string {
	parts, present := strings.Split(read, separator), strings.Split(now, separator)
	for i, u := range uses {
		same := func(e use) bool { return e.source == u.source && slices.Equal(e.keys, u.keys) }
		if !slices.ContainsFunc(earlier, same) {
			parts[i] = present[i]
		}
	}
	return strings.Join(parts, separator)
}

// reads tells whether any of the uses read a source.
func reads(uses []use, source string) bool {
	return slices.ContainsFunc(uses, func(u use) bool { return u.source == source })
}
