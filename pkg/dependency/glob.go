// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"cmp"
	"slices"
	"strings"
	"sync/atomic"
)

// A glob may name all sources of a namespace, and all workloads may have it. So its sources are kept
// in one aggregate for each namespace and glob, which all workloads with that glob share. A change
// of a source costs the same for any number of sources and workloads. What a workload adds or leaves
// out is computed from the aggregate on demand.

// Patterns are the sources that annotations of a workload add or exclude.
type Patterns struct {
	Sources, Exclude []Pattern
}

func (p *Patterns) equal(other Patterns) bool {
	return slices.Equal(p.Sources, other.Sources) && slices.Equal(p.Exclude, other.Exclude)
}

// extra is what a workload uses in addition to its template.
type extra struct {
	patterns   Patterns
	references []Reference // by their names
	globs      []globID
}

// globID names an aggregate.
type globID struct {
	namespace string
	Pattern
	// except are the patterns of the same kind that exclude sources, in order, each with a comma.
	except string
}

func compareGlobs(a, b *globID) int {
	return cmp.Or(compare3(a.namespace, b.namespace, string(a.Kind), string(b.Kind), a.Name, b.Name), strings.Compare(a.except, b.except))
}

func newGlobID(namespace string, glob Pattern, exclude []Pattern) globID {
	return globID{namespace, glob, exceptOf(glob.Kind, exclude)}
}

func exceptOf(kind SourceKind, exclude []Pattern) string {
	var except []string
	for _, p := range exclude {
		if p.Kind == kind {
			except = append(except, p.Name+",")
		}
	}
	return strings.Join(sortedSet(except), "")
}

// globUse is the use of a glob by a workload.
type globUse struct {
	glob     globID
	workload WorkloadKey
}

func compareGlobUses(a, b *globUse) int {
	return cmp.Or(compareGlobs(&a.glob, &b.glob), compareWorkloads(&a.workload, &b.workload))
}

func newExtra(namespace string, patterns Patterns) *extra {
	n := &extra{patterns: patterns}
	except := map[SourceKind]string{} // which all of the globs share
	for _, kind := range []SourceKind{ConfigMap, Secret} {
		except[kind] = exceptOf(kind, patterns.Exclude)
	}
	for _, p := range patterns.Sources {
		if !p.Glob() {
			n.references = append(n.references, Reference{Kind: p.Kind, Name: p.Name, Uses: Wholly})
		} else if id := (globID{namespace, p, except[p.Kind]}); !slices.Contains(n.globs, id) {
			n.globs = append(n.globs, id)
		}
	}
	return n
}

// aggregate is what a glob names. It is immutable, except for members, which is computed on first
// use.
type aggregate struct {
	id      globID
	matcher globMatcher
	except  Matcher
	members atomic.Pointer[members] // nil: they have not been looked up
}

func newAggregate(id globID) *aggregate {
	a := &aggregate{id: id, matcher: newGlobMatcher(id.Pattern)}
	var except []Pattern
	for name := range strings.SplitSeq(id.except, ",") {
		if name != "" {
			except = append(except, Pattern{id.Kind, name})
		}
	}
	a.except = NewMatcher(except)
	return a
}

func (a *aggregate) names(name string) bool {
	return a.matcher.matches(a.id.Kind, name) && !a.except.Matches(a.id.Kind, name)
}

// after returns the aggregate after a source that it names has changed. Either state of the source may be nil.
func (a *aggregate) after(before, now *Source) *aggregate {
	next := &aggregate{id: a.id, matcher: a.matcher, except: a.except}
	if m := a.members.Load(); m != nil {
		next.members.Store(m.after(before, now))
	}
	return next
}

// eachAggregate calls f for the aggregates that name a source, until it returns false.
func (g *Graph) eachAggregate(key SourceKey, f func(*aggregate) bool) {
	g.globs.from(globID{namespace: key.Namespace, Pattern: Pattern{Kind: key.Kind}}, func(id *globID, a *aggregate) bool {
		if id.namespace != key.Namespace || id.Kind != key.Kind {
			return false
		}
		return !a.names(key.Name) || f(a)
	})
}

// aggregates returns those that name a source.
func (g *Graph) aggregates(key SourceKey) (all []*aggregate) {
	g.eachAggregate(key, func(a *aggregate) bool { all = append(all, a); return true })
	return all
}

// aggregateChanged applies a change of a source to the aggregates. Either source may be
// nil.
func (g *Graph) aggregateChanged(before, now *Source) {
	key := cmp.Or(now, before).SourceKey
	for _, a := range g.aggregates(key) {
		next := a.after(before, now)
		g.globs.set(&next.id, next)
	}
}

// setExtra sets what a workload uses in addition to its template.
func (g *Graph) setExtra(key WorkloadKey, before, now *extra) {
	if before == now {
		return
	}
	var globs []globID
	if now == nil {
		g.extra.delete(key)
	} else {
		g.extra.set(&key, now)
		globs = now.globs
	}
	for i := range globs {
		g.useGlob(&globs[i], key)
	}
	if before == nil {
		return
	}
	for _, id := range before.globs {
		if !slices.Contains(globs, id) {
			g.disuseGlob(&id, key)
		}
	}
}
