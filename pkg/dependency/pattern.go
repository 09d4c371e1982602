package dependency

import (
	"path"
	"slices"
	"strings"
)

// Pattern names sources of the namespace of a workload: one, or all that a glob matches.
type Pattern struct {
	Kind SourceKind
	// Name is the name of a source, or a glob as in path.Match.
	Name string
}

// Glob reports whether the pattern may name several sources.
func (p Pattern) Glob() bool { return strings.ContainsAny(p.Name, `*?[\\`) }

// Matches reports whether the pattern names a source. A glob that is malformed names none.
func (p Pattern) Matches(kind SourceKind, name string) bool {
	if p.Kind != kind {
		return false
	}
	if !p.Glob() {
		return p.Name == name
	}
	matched, err := path.Match(p.Name, name)
	return err == nil && matched
}

// LastGone returns when the last of the sources that a pattern names in a namespace, and
// none of those that except, was deleted, of those that are gone: the zero value if none is
// known. It may be later than that when too many have gone to remember them all.
func (g *Graph) LastGone(namespace string, p Pattern, except []Pattern) Change {
	last := g.forgotten
	for key, gone := range g.gone {
		change := gone.change
		if key.Namespace == namespace && change.Version >= last.Version && p.Matches(key.Kind, key.Name) && !matchesAny(except, key.Kind, key.Name) {
			last = change
		}
	}
	return last
}

func matchesAny(patterns []Pattern, kind SourceKind, name string) bool {
	return slices.ContainsFunc(patterns, func(p Pattern) bool { return p.Matches(kind, name) })
}
