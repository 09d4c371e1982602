// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"maps"
	"slices"
	"time"

	"k8s.io/utils/lru"
)

// Graph holds the workloads and sources of a cluster and the references between them in
// both directions, so that a change of a source costs one lookup. It is not safe for
// concurrent use, but a Snapshot is; the values in it are immutable.
type Graph struct {
	digester  *Digester // of what is in it; see SetDigester
	workloads tree[WorkloadKey, *Workload]
	sources   tree[SourceKey, *Source]
	// unread are sources that exist but are not read. No source of the kind leftOut is read, and with selectedByLabel none
	// that lacks the label.
	unread          tree[SourceKey, *Unread]
	leftOut         SourceKind
	selectedByLabel bool
	// besides are sources that are not in the cluster; see With.
	besides map[SourceKey]*Source
	// podStatuses are statuses of SecretProviderClasses, by name, and mounts the same in the order of compareMounts.
	podStatuses, mounts tree[PodStatus, *PodStatus]
	agents              agentPods
	namespaces          tree[string, *namespace] // those of which anything else is kept than unreadNamespace, or that are being deleted
	// unreadNamespace are our annotations of a namespace that has not been read; see SetUnreadNamespace.
	unreadNamespace map[string]string
	users           users
	// owned says which workloads belong to which others.
	owned tree[ownedKey, struct{}]
	// borrowers says whose pods have the template of which other one.
	borrowers tree[ownedKey, struct{}]
	// extra is what the annotations of workloads name in addition to their templates; globs is what is known of the
	// globs among these, and globUsers are the workloads that use them.
	extra     tree[WorkloadKey, *extra]
	globs     tree[globID, *aggregate] // those that are admitted
	globUsers tree[globUse, struct{}]
	// globSpaces decides for each namespace which globs are admitted, and changedGlobs are those whose admission has
	// changed. Snapshots have neither.
	globSpaces   map[string]*globSpace
	changedGlobs Globs
	// waiting are the workloads with gates that wait. arrivals are the changes of sources with which some of these have
	// yet to be updated, and toldLast is the last workload that was updated with the first of them. arrived is the
	// number of arrivals so far.
	waiting  users
	arrivals []arrival
	arrived  uint64
	toldLast WorkloadKey
	// gone are deleted sources that workloads refer to by their names. unused are the deletions of sources that may
	// have been deleted before any workload referred to them.
	gone   tree[SourceKey, goneSource]
	unused tree[SourceKey, Change]
	// goneContents are, for each namespace, the sources in gone whose content is remembered, and deletions are its last
	// deletions. Deletions in namespaces that have been forgotten were no later than deletedElsewhere. Snapshots have
	// none of these.
	goneContents     map[string]*goneContents
	deletions        *lru.Cache
	deletedElsewhere Change
	bounds           bounds
	// writers remembers when field managers wrote, by namespace. Snapshots share it, so that it may know of later
	// writes than they do.
	writers *lru.Cache
	// since is when the first lists were complete. In which order the changes that they showed were made is not known.
	since Moment
	// order is the place of the last change of a source in the order in which it was read.
	order uint64
	// severalCounters: versions of different resources must not be compared.
	severalCounters bool
}

// namespace is immutable.
type namespace struct {
	name        string
	annotations map[string]string // of ours
	terminating bool              // it is being deleted
	changing    *changingNamespace
}

// changingNamespace is a change of the annotations of a namespace with which some workloads have yet to be updated.
type changingNamespace struct {
	before map[string]string
	order  uint64 // of the change, in the order of reading
}

// bounds are those of what is kept of a namespace, of how many namespaces, and of what is done at once.
type bounds struct{ goneBytes, deletions, deletionNamespaces, globWork, told int }

// NewGraph returns an empty graph.
func NewGraph() *Graph {
	return newGraph(bounds{maxGoneBytes, maxDeletions, maxDeletionNamespaces, MaxGlobWork, maxTold})
}

func newGraph(b bounds) *Graph {
	g := &Graph{
		workloads:   newTree[WorkloadKey, *Workload](compareWorkloads),
		sources:     newTree[SourceKey, *Source](compareSources),
		unread:      newTree[SourceKey, *Unread](compareSources),
		namespaces:  newTree[string, *namespace](compareNames),
		podStatuses: newTree[PodStatus, *PodStatus](comparePodStatuses),
		mounts:      newTree[PodStatus, *PodStatus](compareMounts),
		agents:      newAgentPods(),
		users:       newUsers(),
		owned:       newTree[ownedKey, struct{}](compareOwned),
		borrowers:   newTree[ownedKey, struct{}](compareOwned),
		waiting:     newUsers(),
		extra:       newTree[WorkloadKey, *extra](compareWorkloads),
		globs:       newTree[globID, *aggregate](compareGlobs),
		globUsers:   newTree[globUse, struct{}](compareGlobUses),
		gone:        newTree[SourceKey, goneSource](compareSources),
		unused:      newTree[SourceKey, Change](compareSources),
		writers:     lru.New(maxWriterNamespaces),

		goneContents: map[string]*goneContents{},
		globSpaces:   map[string]*globSpace{},
		bounds:       b,
	}
	g.deletions = g.newDeletions(b.deletionNamespaces)
	return g
}

// Snapshot returns the current graph. It takes the same time for any number of objects. The
// result never changes, and any number of goroutines can read it while the graph is changed.
func (g *Graph) Snapshot() *Graph {
	s := *g
	s.workloads, s.sources, s.namespaces = g.workloads.clone(), g.sources.clone(), g.namespaces.clone()
	s.unread, s.owned = g.unread.clone(), g.owned.clone()
	s.borrowers = g.borrowers.clone()
	s.podStatuses, s.mounts, s.agents = g.podStatuses.clone(), g.mounts.clone(), g.agents.clone()
	s.users, s.waiting, s.gone, s.unused = g.users.clone(), g.waiting.clone(), g.gone.clone(), g.unused.clone()
	s.extra, s.globs, s.globUsers = g.extra.clone(), g.globs.clone(), g.globUsers.clone()
	s.goneContents, s.deletions = nil, nil
	s.globSpaces, s.changedGlobs = nil, nil
	return &s
}

// SetDigester sets the digester with which sources are read from now on. As long as there are sources of another
// digester, hashes cannot be compared.
func (g *Graph) SetDigester(d *Digester) { g.digester = d }

// Digester returns the digester by which the sources were read; nil: none was set.
func (g *Graph) Digester() *Digester { return g.digester }

// SetSince notes when the first lists were complete.
func (g *Graph) SetSince(at Moment) { g.since, g.order = at, max(g.order, at.Order) }

// SetSeveralCounters notes whether resources may have several revision counters, so that
// versions of one say nothing about when another changed. By default, a graph assumes one
// counter.
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

// namespace returns what is known about a namespace.
func (g *Graph) namespace(name string) namespace {
	if n := g.namespaces.get(name); n != nil {
		return *n
	}
	return namespace{name: name, annotations: g.unreadNamespace}
}

func (g *Graph) setNamespace(n namespace) {
	if maps.Equal(n.annotations, g.unreadNamespace) && !n.terminating && n.changing == nil {
		g.namespaces.delete(n.name)
		return
	}
	g.namespaces.set(&n.name, &n)
}

// Terminating reports whether a workload is being deleted, or its namespace is.
func (g *Graph) Terminating(w *Workload) bool {
	return w.Terminating || g.namespace(w.Namespace).terminating
}

// Workload returns a workload, or nil.
func (g *Graph) Workload(key WorkloadKey) *Workload { return g.workloads.get(key) }

// Source returns a source, or nil.
func (g *Graph) Source(key SourceKey) *Source {
	if s := g.besides[key]; s != nil {
		return s
	}
	return g.sources.get(key)
}

// Sources returns a lookup of the sources of one namespace.
func (g *Graph) Sources(namespace string) func(SourceKind, string) *Source {
	return func(kind SourceKind, name string) *Source { return g.Source(SourceKey{kind, namespace, name}) }
}

// Namespace returns the annotations of a namespace that are ours.
func (g *Graph) Namespace(name string) map[string]string { return g.namespace(name).annotations }

// NamespaceOf returns our annotations of the namespace of a workload. While they change, workloads are updated one
// by one; for those that have not been updated, it returns the previous annotations.
func (g *Graph) NamespaceOf(w *Workload) map[string]string {
	n := g.namespace(w.Namespace)
	if n.behind(w) {
		return n.changing.before
	}
	return n.annotations
}

// Behind reports whether the annotations of the namespace of a workload have changed since the workload was
// last updated with them.
func (g *Graph) Behind(w *Workload) bool {
	n := g.namespace(w.Namespace)
	return n.behind(w)
}

func (n *namespace) behind(w *Workload) bool {
	return n.changing != nil && w.noted != 0 && w.noted < n.changing.order
}

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
	if gone.Source != nil && len(gone.Shown(r)) == 0 { // nothing that r reads went with it
		return gone.moment(gone.written(r))
	}
	return gone.change.Moment()
}

// First returns the state of a source when this process began to watch: without keys, or nil, if it was absent. Known
// is false if that has been forgotten.
func (g *Graph) First(key SourceKey) (s *Source, known bool) {
	s = g.sourceOrGone(key)
	switch {
	case s == nil || s.history().first == nil:
		return s, true
	case s.history().first == unknownKeys:
		return nil, false
	default:
		return &Source{SourceKey: key, Keys: *s.history().first}, true
	}
}

// sourceOrGone returns a source, or what was known about it when it was deleted, or nil.
func (g *Graph) sourceOrGone(key SourceKey) *Source {
	if s := g.Source(key); s != nil {
		return s
	}
	return g.goneOf(key).Source
}

// Past returns the last contents of a source before the current one that this process has seen, the
// latest last: keys, LastChanged and Change of each, and when it changed or was deleted. While the
// source was absent it had none.
func (g *Graph) Past(key SourceKey) []Past {
	s := g.sourceOrGone(key)
	if s == nil {
		return nil
	}
	return s.history().past
}

// ChangedSince returns when the content of a source first and last changed after a moment,
// by the clock of the API server where that is known, else by ours, and how often. The first
// is zero when that is not remembered, both when it has not changed. Live reports whether each of these changes came
// by an event, so that there were no others.
func (g *Graph) ChangedSince(key SourceKey, since Moment) (first, last time.Time, times int, live bool) {
	return g.sourceOrGone(key).changed(func(at Moment) bool { return g.Before(since, at) })
}

// ReadSince is ChangedSince for a place in the order in which this process has read things.
func (g *Graph) ReadSince(key SourceKey, order uint64) (first, last time.Time, times int, live bool) {
	return g.sourceOrGone(key).changed(func(at Moment) bool { return order < at.Order })
}

// Users returns the workloads that a change of a source affects, each once. The source need not
// exist.
func (g *Graph) Users(key SourceKey) (keys []WorkloadKey) {
	g.users.of(key, func(w *Workload) bool {
		keys = append(keys, w.WorkloadKey)
		return true
	})
	byName := len(keys)
	g.eachAggregate(key, func(a *aggregate) bool {
		g.eachGlobUse(&a.id, func(use *globUse) bool {
			keys = append(keys, use.workload)
			return true
		})
		return true
	})
	g.eachAgentUser(key, func(w WorkloadKey) bool {
		keys = append(keys, w)
		return true
	})
	if byName < len(keys) {
		slices.SortFunc(keys, func(a, b WorkloadKey) int { return compareWorkloads(&a, &b) })
		keys = slices.Compact(keys)
	}
	return keys
}

// Used reports whether a change of a source affects any workload.
func (g *Graph) Used(key SourceKey) bool {
	used := g.users.any(key)
	if !used {
		g.eachAggregate(key, func(*aggregate) bool {
			used = true
			return false
		})
	}
	if !used {
		g.eachAgentUser(key, func(WorkloadKey) bool {
			used = true
			return false
		})
	}
	return used
}

// References returns the references of the template of a workload, and those to sources that
// patterns name without a glob. The sources need not exist.
func (g *Graph) References(w *Workload, patterns []Pattern) []Reference {
	if len(patterns) == 0 {
		return w.References
	}
	referred := make(map[sourceID]bool, len(w.References))
	for i := range w.References {
		referred[sourceID{w.References[i].Kind, w.References[i].Name}] = true
	}
	out := slices.Clone(w.References)
	for _, p := range patterns {
		if id := (sourceID{p.Kind, p.Name}); !p.Glob() && !referred[id] {
			referred[id] = true
			out = append(out, Reference{Kind: p.Kind, Name: p.Name, Uses: Wholly})
		}
	}
	slices.SortFunc(out, compareReferences)
	return out
}

// Wholly is the use of a source that counts as a whole, because an annotation names it. It must not be changed.
var Wholly = []Use{{Type: Annotation, Optional: true}}

// Size returns the number of workloads and of sources.
func (g *Graph) Size() (workloads, sources int) { return g.workloads.len(), g.sources.len() }

// EachWorkload calls f for every workload, by namespace, kind and name.
func (g *Graph) EachWorkload(f func(*Workload)) { g.workloads.each(f) }

// EachWorkloadIn calls f for every workload of a namespace, by kind and name.
func (g *Graph) EachWorkloadIn(namespace string, f func(*Workload)) {
	g.workloads.from(WorkloadKey{Namespace: namespace}, func(key *WorkloadKey, w *Workload) bool {
		if key.Namespace != namespace {
			return false
		}
		f(w)
		return true
	})
}

// EachSource calls f for every source.
func (g *Graph) EachSource(f func(*Source)) {
	g.sources.each(func(s *Source) {
		if g.besides[s.SourceKey] == nil {
			f(s)
		}
	})
	for _, s := range g.besides {
		f(s)
	}
}

// EachNamespace calls f with the name of every namespace that has other annotations of ours than one that has not been read,
// or is being deleted.
func (g *Graph) EachNamespace(f func(string)) {
	g.namespaces.each(func(n *namespace) { f(n.name) })
}
