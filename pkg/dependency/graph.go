package dependency

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"k8s.io/utils/lru"
)

// Graph holds the workloads and sources of a cluster and knows in both directions who
// uses whom, so that a change of a source costs one look-up. It is not safe for
// concurrent use; the values in it are immutable.
type Graph struct {
	workloads  map[string]map[WorkloadKey]*Workload // by namespace
	sources    map[string]map[sourceID]*Source      // by namespace
	namespaces map[string]map[string]string         // annotations, of those that have any of ours
	users      map[SourceKey][]*Workload            // in no order
	// globs are the workloads of a namespace that use sources by a pattern.
	globs map[string]map[WorkloadKey]glob
	// terminating are the namespaces that are being deleted.
	terminating map[string]bool
	// gone are sources, by namespace, that have been deleted and that workloads refer to;
	// remembered is how many there are, and mostGone how many there may be.
	gone                 map[string]map[sourceID]goneSource
	remembered, mostGone int
	// writers remembers when field managers wrote.
	writers *lru.Cache
	// forgotten is the last change of those that had to be forgotten.
	forgotten Change
	// since is when the first lists were complete. What came first of what they showed is
	// not known.
	since Moment
	// order is the place of the last change of a source in the order in which it was read.
	order uint64
	// severalCounters: versions of different resources must not be compared.
	severalCounters bool
}

// goneSource is a source that has been deleted, as it was, with when it went.
type goneSource struct {
	*Source
	change Change
}

type glob struct {
	workload *Workload
	patterns []Pattern
	matcher  Matcher
}

// NewGraph returns an empty graph.
func NewGraph() *Graph {
	return &Graph{
		workloads:  map[string]map[WorkloadKey]*Workload{},
		sources:    map[string]map[sourceID]*Source{},
		namespaces: map[string]map[string]string{},
		users:      map[SourceKey][]*Workload{},
		globs:      map[string]map[WorkloadKey]glob{},
		gone:       map[string]map[sourceID]goneSource{},
		mostGone:   maxGone,
		writers:    lru.New(maxWriters),

		terminating: map[string]bool{},
	}
}

// SetSince notes when the first lists were complete.
func (g *Graph) SetSince(at Moment) { g.since, g.order = at, max(g.order, at.Order) }

// SetSeveralCounters notes whether resources may have several revision counters, so that
// versions of one say nothing of when another changed. A graph takes them for one.
func (g *Graph) SetSeveralCounters(several bool) { g.severalCounters = several }

// Before reports whether one moment was certainly, or with several revision counters by
// the order of reading, before another one. The zero moment is before all others.
func (g *Graph) Before(a, b Moment) bool {
	if g.severalCounters {
		return a.Order < b.Order
	}
	return a.Version < b.Version
}

// Latest returns the latest of some moments.
func (g *Graph) Latest(moments ...Moment) (latest Moment) {
	for _, m := range moments {
		if g.Before(latest, m) {
			latest = m
		}
	}
	return latest
}

// Order returns the place of the last change of a source, or of the first lists, in the order in
// which this process has read things.
func (g *Graph) Order() uint64 { return g.order }

// Since returns when the first lists were complete.
func (g *Graph) Since() Moment { return g.since }

// SeveralCounters reports whether versions of different resources must not be compared.
func (g *Graph) SeveralCounters() bool { return g.severalCounters }

// Deleted returns what was known of a source that has been deleted, or nil.
func (g *Graph) Deleted(key SourceKey) *Source { return g.goneOf(key).Source }

// goneOf returns a source that has been deleted, or the zero value.
func (g *Graph) goneOf(key SourceKey) goneSource {
	return g.gone[key.Namespace][sourceID{key.Kind, key.Name}]
}

// Terminating reports whether a workload is being deleted, or its namespace is.
func (g *Graph) Terminating(w *Workload) bool { return w.Terminating || g.terminating[w.Namespace] }

// Workload returns a workload, or nil.
func (g *Graph) Workload(key WorkloadKey) *Workload { return g.workloads[key.Namespace][key] }

// Source returns a source, or nil.
func (g *Graph) Source(key SourceKey) *Source {
	return g.sources[key.Namespace][sourceID{key.Kind, key.Name}]
}

// Sources returns a look-up of the sources of one namespace.
func (g *Graph) Sources(namespace string) func(SourceKind, string) *Source {
	sources := g.sources[namespace]
	return func(kind SourceKind, name string) *Source { return sources[sourceID{kind, name}] }
}

// Namespace returns the annotations of a namespace that are ours.
func (g *Graph) Namespace(name string) map[string]string { return g.namespaces[name] }

// LastChange returns when the content of a source last changed, as far as it is known:
// the zero value for one that has been absent since before anything was read.
func (g *Graph) LastChange(key SourceKey) Change {
	if s := g.Source(key); s != nil {
		return s.Change
	}
	return g.goneOf(key).change
}

// LastWritten returns an upper bound on the last change of what r reads in a namespace.
func (g *Graph) LastWritten(namespace string, r *Reference) Moment {
	key := SourceKey{r.Kind, namespace, r.Name}
	s := g.Source(key)
	if s != nil {
		return s.LastWritten(r)
	}
	gone := g.goneOf(key)
	if gone.Source != nil && gone.Shown(r) == 0 { // nothing that r reads went with it
		return gone.moment(gone.written(r))
	}
	return gone.change.Moment()
}

// First returns a source as it was when this process began to look, or nil if it was absent, as far
// as it is known.
func (g *Graph) First(key SourceKey) *Source {
	s := g.Source(key)
	if s == nil {
		s = g.goneOf(key).Source
	}
	if s == nil || s.first == nil {
		return s
	}
	return &Source{SourceKey: key, Keys: *s.first}
}

// Past returns the last contents of a source before the current one that this process has seen, the
// latest last: keys, LastChanged and Change of each, and when it changed or was deleted. While the
// source was absent it had none.
func (g *Graph) Past(key SourceKey) []Past {
	s := g.Source(key)
	if s == nil {
		s = g.goneOf(key).Source
	}
	if s == nil {
		return nil
	}
	return s.past
}

// ChangedSince returns when the content of a source first and last changed after a moment,
// by the clock of the API server where that is known, else by ours, and how often. The first
// is zero when that is not remembered, both when it has not changed.
func (g *Graph) ChangedSince(key SourceKey, since Moment) (first, last time.Time, times int) {
	return g.changed(key, func(at Moment) bool { return g.Before(since, at) })
}

// ReadSince is ChangedSince for a place in the order in which this process has read things.
func (g *Graph) ReadSince(key SourceKey, order uint64) (first, last time.Time, times int) {
	return g.changed(key, func(at Moment) bool { return order < at.Order })
}

func (g *Graph) changed(key SourceKey, counts func(Moment) bool) (first, last time.Time, times int) {
	s := g.Source(key)
	if s == nil {
		s = g.goneOf(key).Source
	}
	if s == nil {
		return time.Time{}, time.Time{}, 0
	}
	episodes := s.episodes
	for i := range episodes {
		if e := &episodes[i]; counts(e.Moment) {
			if times == 0 && (i > 0 || len(episodes) < maxEpisodes) {
				first = e.at
			}
			last = e.at
			times++
		}
	}
	return first, last, times
}

// Users returns the workloads that a change of a source concerns. The source need not
// exist.
func (g *Graph) Users(key SourceKey) []WorkloadKey {
	direct, globs := g.users[key], g.globs[key.Namespace]
	if len(direct) == 0 && len(globs) == 0 {
		return nil
	}
	keys := make([]WorkloadKey, 0, len(direct))
	for _, w := range direct {
		keys = append(keys, w.WorkloadKey)
	}
	for k, u := range globs {
		if u.matcher.Matches(key.Kind, key.Name) && !u.workload.refersTo(key) {
			keys = append(keys, k)
		}
	}
	return keys
}

// used reports whether a change of a source concerns any workload.
func (g *Graph) used(key SourceKey) bool {
	if len(g.users[key]) > 0 {
		return true
	}
	for _, u := range g.globs[key.Namespace] {
		if u.matcher.Matches(key.Kind, key.Name) {
			return true
		}
	}
	return false
}

// refersTo reports whether the template refers to a source of the namespace.
func (w *Workload) refersTo(key SourceKey) bool {
	return slices.ContainsFunc(w.References, func(r Reference) bool { return r.Kind == key.Kind && r.Name == key.Name })
}

// References returns what the template of a workload refers to, and besides the sources
// that patterns name: by its name one that need not exist, by a glob all that do.
func (g *Graph) References(w *Workload, patterns []Pattern) []Reference {
	if len(patterns) == 0 {
		return w.References
	}
	referred := make(map[sourceID]bool, len(w.References))
	for i := range w.References {
		referred[sourceID{w.References[i].Kind, w.References[i].Name}] = true
	}
	matcher := NewMatcher(patterns)
	var besides []sourceID
	for id := range matcher.names {
		if !referred[id] {
			besides = append(besides, id)
		}
	}
	if len(matcher.globs) > 0 {
		for id := range g.sources[w.Namespace] {
			if matcher.anyGlob(id.kind, id.name) && !matcher.names[id] && !referred[id] {
				besides = append(besides, id)
			}
		}
	}
	slices.SortFunc(besides, sourceID.compare)
	template := slices.SortedFunc(slices.Values(w.References), compareReferences)
	out := make([]Reference, 0, len(template)+len(besides))
	for _, id := range besides {
		for len(template) > 0 && (sourceID{template[0].Kind, template[0].Name}).compare(id) < 0 {
			out, template = append(out, template[0]), template[1:]
		}
		out = append(out, Reference{Kind: id.kind, Name: id.name, Uses: annotated})
	}
	return append(out, template...)
}

// annotated is the use of a source that an annotation names.
var annotated = []Use{{Type: Annotation, Optional: true}}

// Size returns the number of workloads and of sources.
func (g *Graph) Size() (workloads, sources int) {
	for _, of := range g.workloads {
		workloads += len(of)
	}
	for _, of := range g.sources {
		sources += len(of)
	}
	return workloads, sources
}

// EachWorkload calls f for every workload, in no order.
func (g *Graph) EachWorkload(f func(*Workload)) {
	for _, of := range g.workloads {
		for _, w := range of {
			f(w)
		}
	}
}

// EachWorkloadIn calls f for every workload of a namespace, in no order.
func (g *Graph) EachWorkloadIn(namespace string, f func(*Workload)) {
	for _, w := range g.workloads[namespace] {
		f(w)
	}
}

// EachSource calls f for every source, in no order.
func (g *Graph) EachSource(f func(*Source)) {
	for _, of := range g.sources {
		for _, s := range of {
			f(s)
		}
	}
}

// EachNamespace calls f with the name of every namespace that has annotations of ours or is
// being deleted.
func (g *Graph) EachNamespace(f func(string)) {
	for name := range g.namespaces {
		f(name)
	}
	for name := range g.terminating {
		if _, done := g.namespaces[name]; !done {
			f(name)
		}
	}
}

// SetWorkload adds a workload or puts it in the place of one with the same key. Patterns
// name sources that it uses besides those of its template.
func (g *Graph) SetWorkload(w *Workload, patterns []Pattern) {
	before := g.takeOut(w.WorkloadKey)
	if before.workload == nil || before.workload.StartVersion != w.StartVersion {
		g.beginWaiting(w)
	}
	if g.workloads[w.Namespace] == nil {
		g.workloads[w.Namespace] = map[WorkloadKey]*Workload{}
	}
	g.workloads[w.Namespace][w.WorkloadKey] = w
	g.noteWrite(w.Namespace, w.templateBy, w.TemplateSeen)
	for i := range w.References {
		key := w.sourceKey(i)
		g.users[key] = append(g.users[key], w)
	}
	if len(patterns) > 0 {
		if g.globs[w.Namespace] == nil {
			g.globs[w.Namespace] = map[WorkloadKey]glob{}
		}
		now := glob{w, patterns, before.matcher}
		if !slices.Equal(patterns, before.patterns) {
			now.matcher = NewMatcher(patterns)
		}
		g.globs[w.Namespace][w.WorkloadKey] = now
	}
	g.forget(before, patterns)
}

// DeleteWorkload removes a workload, if it is there.
func (g *Graph) DeleteWorkload(key WorkloadKey) { g.forget(g.takeOut(key), nil) }

// takeOut removes a workload and returns it with its patterns, or neither.
func (g *Graph) takeOut(key WorkloadKey) glob {
	w := g.Workload(key)
	if w == nil {
		return glob{}
	}
	out := g.globs[key.Namespace][key]
	out.workload = w
	drop(g.workloads, key.Namespace, key)
	drop(g.globs, key.Namespace, key)
	for i := range w.References {
		source := w.sourceKey(i)
		users := g.users[source]
		if len(users) == 1 {
			delete(g.users, source)
			continue
		}
		at := slices.Index(users, w)
		users[at] = users[len(users)-1]
		users[len(users)-1] = nil
		g.users[source] = users[:len(users)-1]
	}
	return out
}

// drop deletes what a namespace has by a key.
func drop[K comparable, V any](from map[string]map[K]V, namespace string, key K) {
	of := from[namespace]
	if delete(of, key); len(of) == 0 {
		delete(from, namespace)
	}
}

// forget drops when sources were deleted that a workload used and that none uses any more. Now
// are the patterns that it has instead.
func (g *Graph) forget(before glob, now []Pattern) {
	if before.workload == nil || len(g.gone[before.workload.Namespace]) == 0 {
		return
	}
	for i := range before.workload.References {
		g.forgetUnused(before.workload.sourceKey(i))
	}
	if len(before.patterns) == 0 || slices.Equal(before.patterns, now) {
		return
	}
	for id := range g.gone[before.workload.Namespace] {
		if before.matcher.Matches(id.kind, id.name) {
			g.forgetUnused(SourceKey{id.kind, before.workload.Namespace, id.name})
		}
	}
}

func (g *Graph) forgetUnused(key SourceKey) {
	if g.goneOf(key).Source != nil && !g.used(key) {
		g.forgetGone(key)
	}
}

// remember notes a source that has been deleted.
func (g *Graph) remember(gone goneSource) {
	key := gone.SourceKey
	g.forgetGone(key)
	if g.gone[key.Namespace] == nil {
		g.gone[key.Namespace] = map[sourceID]goneSource{}
	}
	g.gone[key.Namespace][sourceID{key.Kind, key.Name}] = gone
	g.remembered++
}

// forgetGone drops what is known of a source that has been deleted.
func (g *Graph) forgetGone(key SourceKey) {
	if g.goneOf(key).Source != nil {
		drop(g.gone, key.Namespace, sourceID{key.Kind, key.Name})
		g.remembered--
	}
}

// SetSource adds a source or puts it in the place of one with the same key.
func (g *Graph) SetSource(s *Source) {
	of := g.sources[s.Namespace]
	if of == nil {
		of = map[sourceID]*Source{}
		g.sources[s.Namespace] = of
	}
	last := g.LastChange(s.SourceKey)
	of[sourceID{s.Kind, s.Name}] = s
	g.forgetGone(s.SourceKey)
	g.order = max(g.order, s.Change.Order)
	g.noteWrite(s.Namespace, s.ChangedBy, s.Change.Seen)
	if s.Change != last {
		g.endWaiting(s.SourceKey, s.Change)
	}
}

// DeleteSource removes a source, if it is there, and remembers when for those who refer
// to it.
func (g *Graph) DeleteSource(key SourceKey, change Change) {
	of := g.sources[key.Namespace]
	id := sourceID{key.Kind, key.Name}
	deleted := of[id]
	if deleted == nil {
		return
	}
	g.order = max(g.order, change.Order)
	drop(g.sources, key.Namespace, id)
	if g.used(key) {
		was := *deleted
		was.deletedAt = change.Version
		if was.episodes = addEpisode(was.episodes, episode{change.Moment(), change.Seen}); change.Seen.IsZero() {
			was.episodes = nil
		}
		was.past = addPast(deleted, change)
		g.remember(goneSource{&was, change})
		if g.remembered > g.mostGone {
			g.forgetOldest()
			// Those that templates name stay, however many there are: it is tried again when
			// there is something to be gained.
			g.mostGone = max(maxGone, g.remembered+maxGone/4)
		}
	}
	g.endWaiting(key, change)
}

// maxGone bounds how many deletions are remembered for globs: a namespace in which sources
// with new names come and go would need ever more memory.
const maxGone = 10_000

// forgetOldest forgets the older half of the deletions that only globs name.
func (g *Graph) forgetOldest() {
	var old []goneSource
	for _, of := range g.gone {
		for _, gone := range of {
			if len(g.users[gone.SourceKey]) == 0 {
				old = append(old, gone)
			}
		}
	}
	slices.SortFunc(old, func(a, b goneSource) int { return cmp.Compare(a.change.Version, b.change.Version) })
	for _, gone := range old[:len(old)/2] {
		if gone.change.Version > g.forgotten.Version {
			g.forgotten = gone.change
		}
		g.forgetGone(gone.SourceKey)
	}
}

// SetNamespace notes the annotations of a namespace that are ours and reports whether they
// have changed.
func (g *Graph) SetNamespace(name string, annotations map[string]string) (changed bool) {
	if maps.Equal(g.namespaces[name], annotations) {
		return false
	}
	if len(annotations) == 0 {
		delete(g.namespaces, name)
	} else {
		g.namespaces[name] = annotations
	}
	return true
}

// SetTerminating notes whether a namespace is being deleted, and reports whether that has
// changed.
func (g *Graph) SetTerminating(name string, terminating bool) (changed bool) {
	if g.terminating[name] == terminating {
		return false
	}
	if terminating {
		g.terminating[name] = true
	} else {
		delete(g.terminating, name)
	}
	return true
}

func (w *Workload) sourceKey(i int) SourceKey {
	return SourceKey{w.References[i].Kind, w.Namespace, w.References[i].Name}
}

// With returns the graph as it would be with some sources besides. It is for one answer:
// nothing is remembered of it, and it shares everything else with the graph.
func (g *Graph) With(sources []*Source) *Graph {
	with := *g
	with.sources = maps.Clone(g.sources)
	cloned := map[string]bool{}
	for _, s := range sources {
		if !cloned[s.Namespace] {
			cloned[s.Namespace] = true
			of := maps.Clone(g.sources[s.Namespace])
			if of == nil {
				of = map[sourceID]*Source{}
			}
			with.sources[s.Namespace] = of
		}
		with.sources[s.Namespace][sourceID{s.Kind, s.Name}] = s
	}
	return &with
}
