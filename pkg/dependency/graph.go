// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"time"

	"maps"
	"slices"

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
	// complete is since when everything has been read, by this server's clock; zero: it has not.
	complete time.Time
	// podStatuses are statuses of SecretProviderClasses, by name, and mounts the same in the order of compareMounts.
	podStatuses, mounts tree[PodStatus, *PodStatus]
	pods                pods
	replicaSets         replicaSets
	runs                runs
	namespaces          tree[string, *namespace] // those of which anything else is kept than unreadNamespace
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
	// globSpaces are by namespace, and changedGlobs are those whose admission has changed. Snapshots have neither.
	globSpaces   map[string]*globSpace
	changedGlobs Globs
	limits       any // see SetLimits
	// buried are the periods of deleted sources, and graves their order; snapshots have no graves.
	buried tree[SourceKey, *[]Period]
	graves *lru.Cache
	// globWork limits the work of the globs of a namespace.
	globWork int
	// writers remembers when field managers wrote, by namespace. Snapshots share it, so that it may know of later
	// writes than they do.
	writers *lru.Cache
	// refusals are those of writes, by workload. Snapshots share it, too.
	refusals *lru.Cache
}

// namespace is immutable.
type namespace struct {
	name        string
	annotations map[string]string // of ours
	labels      map[string]string
	terminating bool // it is being deleted
}

// NewGraph returns an empty graph.
func NewGraph() *Graph {
	g := &Graph{
		workloads:   newTree[WorkloadKey, *Workload](compareWorkloads),
		sources:     newTree[SourceKey, *Source](compareSources),
		unread:      newTree[SourceKey, *Unread](compareSources),
		namespaces:  newTree[string, *namespace](compareNames),
		podStatuses: newTree[PodStatus, *PodStatus](comparePodStatuses),
		mounts:      newTree[PodStatus, *PodStatus](compareMounts),
		pods:        newPods(),
		replicaSets: newReplicaSets(),
		runs:        newRuns(),
		users:       newUsers(),
		owned:       newTree[ownedKey, struct{}](compareOwned),
		borrowers:   newTree[ownedKey, struct{}](compareOwned),
		extra:       newTree[WorkloadKey, *extra](compareWorkloads),
		globs:       newTree[globID, *aggregate](compareGlobs),
		globUsers:   newTree[globUse, struct{}](compareGlobUses),
		writers:     lru.New(maxWriterNamespaces),
		refusals:    lru.New(maxRefusals),
		buried:      newTree[SourceKey, *[]Period](compareSources),

		globSpaces: map[string]*globSpace{},
		globWork:   MaxGlobWork,
	}
	g.graves = g.newGraves()
	return g
}

// Snapshot returns the current graph. It takes the same time for any number of objects. The
// result never changes, and any number of goroutines can read it while the graph is changed.
func (g *Graph) Snapshot() *Graph {
	s := *g
	s.workloads, s.sources, s.namespaces = g.workloads.clone(), g.sources.clone(), g.namespaces.clone()
	s.unread, s.owned = g.unread.clone(), g.owned.clone()
	s.borrowers = g.borrowers.clone()
	s.podStatuses, s.mounts = g.podStatuses.clone(), g.mounts.clone()
	s.pods, s.replicaSets, s.runs = g.pods.clone(), g.replicaSets.clone(), g.runs.clone()
	s.users = g.users.clone()
	s.extra, s.globs, s.globUsers = g.extra.clone(), g.globs.clone(), g.globUsers.clone()
	s.buried, s.graves = g.buried.clone(), nil
	s.globSpaces, s.changedGlobs = nil, nil
	return &s
}

// SetComplete notes that everything has been read by a time of this server's clock.
func (g *Graph) SetComplete(at time.Time) { g.complete = at }

// Complete returns since when everything has been read; zero: it has not.
func (g *Graph) Complete() time.Time { return g.complete }

// SetDigester sets the digester with which sources are read from now on. As long as there are sources of another
// digester, hashes cannot be compared.
func (g *Graph) SetDigester(d *Digester) { g.digester = d }

// Digester returns the digester by which the sources were read; nil: none was set.
func (g *Graph) Digester() *Digester { return g.digester }

// namespace returns what is known about a namespace.
func (g *Graph) namespace(name string) namespace {
	if n := g.namespaces.get(name); n != nil {
		return *n
	}
	return namespace{name: name, annotations: g.unreadNamespace}
}

func (g *Graph) setNamespace(n namespace) {
	if maps.Equal(n.annotations, g.unreadNamespace) && len(n.labels) == 0 && !n.terminating {
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
func (g *Graph) Source(key SourceKey) *Source { return g.sources.get(key) }

// Namespace returns the annotations of a namespace that are ours.
func (g *Graph) Namespace(name string) map[string]string { return g.namespace(name).annotations }

// SetLimits sets what limits restarts: a set of package limit, which is not looked at here.
func (g *Graph) SetLimits(limits any) { g.limits = limits }

// Limits returns what limits restarts; nil: nothing was set.
func (g *Graph) Limits() any { return g.limits }

// NamespaceLabels returns the labels of a namespace.
func (g *Graph) NamespaceLabels(name string) map[string]string { return g.namespace(name).labels }

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
func (g *Graph) EachSource(f func(*Source)) { g.sources.each(f) }

// EachNamespace calls f with the name of every namespace that has other annotations of ours than one that has not been read,
// or is being deleted.
func (g *Graph) EachNamespace(f func(string)) {
	g.namespaces.each(func(n *namespace) { f(n.name) })
}
