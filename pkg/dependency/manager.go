// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"hash/maphash"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/lru"
)

// FieldManager identifies a field manager in this process. The name itself is not kept,
// because clients may write anything into it. Zero: none.
type FieldManager uint64

// OwnFieldManager is the name under which configdep writes to workloads.
const OwnFieldManager = "configdep"

// FieldsManager is the name under which configdep sets fields from sources.
const FieldsManager = "configdep-fields"

// maxManagers limits the managers that are kept for one object. The API server keeps 10
// managers that update, and any number that apply.
const maxManagers = 16

func managerOf(entry *metav1.ManagedFieldsEntry) FieldManager { return managerNamed(entry.Manager) }

func managerNamed(name string) FieldManager { return FieldManager(maphash.String(seed, name) | 1) }

// The limits on how many field managers of a namespace, and how many namespaces, the time of the last
// write is remembered for. A client that writes under many names only displaces those of the same
// namespace.
const (
	maxWriters          = 64
	maxWriterNamespaces = 10_000
)

// LastWriteBy returns when this process last saw a field manager change the content of a source
// or a pod template in a namespace, zero if that is not known.
func (g *Graph) LastWriteBy(namespace string, manager FieldManager) time.Time {
	writers := g.writersOf(namespace)
	if writers == nil {
		return time.Time{}
	}
	at, _ := writers.Get(manager)
	seen, _ := at.(time.Time)
	return seen
}

// writersOf returns when field managers last wrote in a namespace; nil: none has.
func (g *Graph) writersOf(namespace string) *lru.Cache {
	found, _ := g.writers.Get(namespace)
	writers, _ := found.(*lru.Cache)
	return writers
}

func (g *Graph) noteWrite(namespace string, manager FieldManager, seen time.Time) {
	if manager == 0 || !seen.After(g.LastWriteBy(namespace, manager)) {
		return
	}
	writers := g.writersOf(namespace)
	if writers == nil {
		writers = lru.New(maxWriters)
		g.writers.Add(namespace, writers)
	}
	writers.Add(manager, seen)
}
