// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"strings"

	"github.com/google/btree"
)

// tree is a sorted map with cheap copies: copies share their nodes, and a node is copied before
// it is changed. Any number of goroutines may read a copy while the original is changed.
type tree[K, V any] struct {
	items *btree.BTreeG[entry[K, V]]
}

// entry has a pointer to the key, which is part of most values.
type entry[K, V any] struct {
	key   *K
	value V
}

// degree is that of the trees: nodes have up to twice as many entries, and are copied as a whole.
const degree = 16

func newTree[K, V any](compare func(a, b *K) int) tree[K, V] {
	return tree[K, V]{btree.NewG(degree, func(a, b entry[K, V]) bool { return compare(a.key, b.key) < 0 })}
}

// clone returns a copy. It must not be called by two goroutines at once.
func (t tree[K, V]) clone() tree[K, V] { return tree[K, V]{t.items.Clone()} }

func (t tree[K, V]) len() int { return t.items.Len() }

// get returns the value of a key, or the zero value.
func (t tree[K, V]) get(key K) V {
	e, _ := t.items.Get(entry[K, V]{key: &key})
	return e.value
}

func (t tree[K, V]) set(key *K, value V) { t.items.ReplaceOrInsert(entry[K, V]{key, value}) }

func (t tree[K, V]) delete(key K) { t.items.Delete(entry[K, V]{key: &key}) }

// from calls f for what is at a key and behind it, until f returns false.
func (t tree[K, V]) from(key K, f func(*K, V) bool) {
	t.items.AscendGreaterOrEqual(entry[K, V]{key: &key}, func(e entry[K, V]) bool { return f(e.key, e.value) })
}

// each calls f for all values.
func (t tree[K, V]) each(f func(V)) {
	t.items.Ascend(func(e entry[K, V]) bool {
		f(e.value)
		return true
	})
}

func compareWorkloads(a, b *WorkloadKey) int {
	return compare3(a.Namespace, b.Namespace, string(a.Kind), string(b.Kind), a.Name, b.Name)
}

func compareSources(a, b *SourceKey) int {
	return compare3(a.Namespace, b.Namespace, string(a.Kind), string(b.Kind), a.Name, b.Name)
}

// compare3 compares three strings of one thing with those of another. The first two are mostly
// equal, which is found out sooner than which is greater.
func compare3(a1, b1, a2, b2, a3, b3 string) int {
	switch {
	case a1 != b1:
		return strings.Compare(a1, b1)
	case a2 != b2:
		return strings.Compare(a2, b2)
	default:
		return strings.Compare(a3, b3)
	}
}

func compareNames(a, b *string) int { return strings.Compare(*a, *b) }

// users holds which workloads refer to a source.
type users struct {
	items *btree.BTreeG[user]
}

// user is a reference of a workload; no workload is before all.
type user struct {
	namespace string
	reference *Reference
	workload  *Workload
}

func newUsers() users { return users{btree.NewG(degree, user.before)} }

func (u user) before(other user) bool {
	a, b := u.reference, other.reference
	if c := compare3(u.namespace, other.namespace, string(a.Kind), string(b.Kind), a.Name, b.Name); c != 0 {
		return c < 0
	}
	if u.workload == nil || other.workload == nil {
		return u.workload == nil && other.workload != nil
	}
	return compareWorkloads(&u.workload.WorkloadKey, &other.workload.WorkloadKey) < 0
}

func (t users) clone() users { return users{t.items.Clone()} }

// replace replaces the workload with the same key and its references. Either may be none.
func (t users) replace(before, now use) {
	if before.workload == now.workload {
		if before.extra == now.extra {
			return
		}
		before.eachReference(func(r *Reference) { t.items.Delete(user{before.workload.Namespace, r, before.workload}) })
		before = use{}
	}
	now.eachReference(func(r *Reference) { t.items.ReplaceOrInsert(user{now.workload.Namespace, r, now.workload}) })
	before.eachReference(func(r *Reference) {
		u := user{before.workload.Namespace, r, before.workload}
		if found, _ := t.items.Get(u); found.workload == before.workload {
			t.items.Delete(u)
		}
	})
}

// of calls f for the workloads that refer to a source, until f returns false.
func (t users) of(key SourceKey, f func(*Workload) bool) {
	t.items.AscendGreaterOrEqual(user{namespace: key.Namespace, reference: &Reference{Kind: key.Kind, Name: key.Name}}, func(u user) bool {
		return u.namespace == key.Namespace && u.reference.Kind == key.Kind && u.reference.Name == key.Name && f(u.workload)
	})
}

// any reports whether a workload refers to a source.
func (t users) any(key SourceKey) (found bool) {
	t.of(key, func(*Workload) bool {
		found = true
		return false
	})
	return found
}
