// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"hash/maphash"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/lru"
)

// FieldManager is the name of a field manager: of a client that writes objects. Empty: none.
type FieldManager string

// OwnFieldManager is the name under which configdep writes to workloads.
const OwnFieldManager = "configdep"

// FieldsManager is the name under which configdep sets fields from sources.
const FieldsManager = "configdep-fields"

// maxManagers limits the managers that are kept for one object. The API server keeps 10
// managers that update, and any number that apply.
const maxManagers = 16

func managerOf(entry *metav1.ManagedFieldsEntry) FieldManager { return managerNamed(entry.Manager) }

func managerNamed(name string) FieldManager {
	return FieldManager(Intern(name[:min(len(name), maxManager)]))
}

// maxManager limits the name of a field manager that is kept, in bytes, as the API server does.
const maxManager = 128

// The limits on how many field managers of a namespace, and how many namespaces, the time of the last
// write is remembered for. A client that writes under many names only displaces those of the same
// namespace.
const (
	maxWriters          = 64
	maxWriterNamespaces = 10_000
)

// write is that this process saw a field manager change the content of a source, or a pod template.
type write struct {
	object uint64 // a hash of the key of the source or workload
	seen   time.Time
}

// lastWrites are the last writes of a field manager to two objects. Other is not later than last.
type lastWrites struct{ last, other write }

// LastWriteBy returns when this process last saw a field manager change the content of another source than one, or a pod template, in
// its namespace; zero: that is not known.
func (g *Graph) LastWriteBy(manager FieldManager, than SourceKey) time.Time {
	writes := g.lastWritesOf(than.Namespace, manager)
	if writes.last.object == maphash.Comparable(seed, than) {
		return writes.other.seen
	}
	return writes.last.seen
}

func (g *Graph) lastWritesOf(namespace string, manager FieldManager) (writes lastWrites) {
	if writers := g.writersOf(namespace); writers != nil {
		found, _ := writers.Get(manager)
		writes, _ = found.(lastWrites)
	}
	return writes
}

// writersOf returns when field managers last wrote in a namespace; nil: none has.
func (g *Graph) writersOf(namespace string) *lru.Cache {
	found, _ := g.writers.Get(namespace)
	writers, _ := found.(*lru.Cache)
	return writers
}

func (g *Graph) noteWrite(namespace string, manager FieldManager, object uint64, seen time.Time) {
	writes := g.lastWritesOf(namespace, manager)
	switch last := &writes.last; {
	case manager == "", !seen.After(writes.other.seen), object == last.object && !seen.After(last.seen):
		return
	case object == last.object:
		last.seen = seen
	case seen.After(last.seen):
		writes.last, writes.other = write{object, seen}, writes.last
	default:
		writes.other = write{object, seen}
	}
	writers := g.writersOf(namespace)
	if writers == nil {
		writers = lru.New(maxWriters)
		g.writers.Add(namespace, writers)
	}
	writers.Add(manager, writes)
}
