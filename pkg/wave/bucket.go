// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package wave

import (
	"cmp"
	"container/heap"
	"slices"
	"time"

	"github.com/configdep/configdep/pkg/limit"
)

// bucketKey identifies a bucket: a budget of a policy, and the namespace or the source that has it.
type bucketKey struct {
	policy    string
	budget    int
	namespace string
	source    Source
}

// bucket is what a budget limits.
type bucket struct {
	key    bucketKey
	id     int
	policy *limit.Policy // nil: it is that of all workloads
	budget *limit.Budget
	max    int // without a budget
	// all counts everything in scope, used what is being restarted, and due what may be restarted, in workloads and in pods.
	all, used, due count
	members        map[*member]struct{} // that are due
	refs           int
	over           bool          // see isOver
	lanes          heapOf[*lane] // that wait for room
}

// count is a number of workloads, and of their pods.
type count struct{ workloads, pods int }

func (c *count) add(m *member, sign int) {
	c.workloads += sign
	c.pods += sign * m.Pods
}

// limit returns how many may be restarted at a time, and until when that is certain; negative: any number.
func (b *bucket) limit(now time.Time) (int, time.Time) {
	if b.budget == nil {
		return b.max, time.Time{}
	}
	all := b.all.workloads
	if b.budget.Pods {
		all = b.all.pods
	}
	return b.budget.Limit(all, now)
}

// room reports whether a workload may be restarted now. One with more pods than the budget allows may, if it is alone.
func (b *bucket) room(m *member, now time.Time) bool {
	n, _ := b.limit(now)
	used := b.used
	if slices.Contains(m.began, b) { // it is only restarted again
		used.add(m, -1)
	}
	switch {
	case n < 0:
		return true
	case b.budget != nil && b.budget.Pods:
		return n > 0 && (used.workloads == 0 || used.pods+m.Pods <= n)
	default:
		return used.workloads < n
	}
}

// isOver reports whether more workloads are due than may be restarted now. All due workloads are then shown as waiting, because their order changes all
// the time.
func (b *bucket) isOver(now time.Time) bool {
	n, _ := b.limit(now)
	switch {
	case n < 0 || len(b.members) == 0:
		return false
	case b.budget != nil && b.budget.Pods:
		return b.used.pods+b.due.pods > n && (n == 0 || b.used.workloads+b.due.workloads > 1)
	default:
		return b.used.workloads+b.due.workloads > n
	}
}

// lane holds the due workloads with the same buckets: if the first of them has to wait, so do the others.
type lane struct {
	key     string
	again   bool // they are in progress already, so that they need no room where they count
	buckets []*bucket
	queues  heapOf[*queue]    // one for each namespace that has members
	byName  map[string]*queue // the same, by namespace
	waitsAt *bucket           // for whose room it waits; nil: for none's
	index   int               // in the heap of that bucket
}

// queue is the members of a lane in one namespace.
type queue struct {
	namespace string
	// rank grows with each restart, so that namespaces take turns.
	rank    int
	members heapOf[*member]
	index   int
}

func (l *lane) head() *member { return l.queues[0].members[0] }

func (l *lane) push(m *member) {
	q := l.byName[m.Namespace]
	if q == nil {
		q = &queue{namespace: m.Namespace}
		if len(l.queues) > 0 {
			q.rank = l.queues[0].rank
		}
		l.byName[m.Namespace] = q
		heap.Push(&q.members, m)
		heap.Push(&l.queues, q)
	} else {
		heap.Push(&q.members, m)
		heap.Fix(&l.queues, q.index)
	}
	m.lane = l
}

// remove removes a member. Begins: it is about to be restarted.
func (l *lane) remove(m *member, begins bool) {
	q := l.byName[m.Namespace]
	heap.Remove(&q.members, m.index)
	m.lane = nil
	if begins {
		q.rank++
	}
	if len(q.members) == 0 {
		heap.Remove(&l.queues, q.index)
		delete(l.byName, m.Namespace)
		return
	}
	heap.Fix(&l.queues, q.index)
}

// full returns a bucket that has no room for the first member; nil: all have.
func (l *lane) full(now time.Time) *bucket {
	m := l.head()
	for _, b := range l.buckets {
		if !b.room(m, now) {
			return b
		}
	}
	return nil
}

// element is what a heap holds: before orders elements, and at tells one where it is.
type element[T any] interface {
	before(other T) bool
	at(index int)
}

// heapOf implements heap.Interface.
type heapOf[T element[T]] []T

func (h heapOf[T]) Len() int           { return len(h) }
func (h heapOf[T]) Less(i, j int) bool { return h[i].before(h[j]) }
func (h heapOf[T]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at(i)
	h[j].at(j)
}

func (h *heapOf[T]) Push(x any) {
	e := x.(T) //nolint:forcetypeassert // it is its own
	e.at(len(*h))
	*h = append(*h, e)
}

func (h *heapOf[T]) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	clear((*h)[last:])
	*h = (*h)[:last]
	return e
}

func (m *member) at(index int) { m.index = index }
func (q *queue) at(index int)  { q.index = index }
func (l *lane) at(index int)   { l.index = index }

func (m *member) before(o *member) bool {
	return cmp.Or(cmp.Compare(m.Order, o.Order), compareKeys(&m.WorkloadKey, &o.WorkloadKey)) < 0
}

func (q *queue) before(o *queue) bool { return compareQueues(q, o) < 0 }

func (l *lane) before(o *lane) bool {
	if l.again != o.again {
		return l.again
	}
	return cmp.Or(compareQueues(l.queues[0], o.queues[0]), compareKeys(&l.head().WorkloadKey, &o.head().WorkloadKey)) < 0
}

func compareQueues(a, b *queue) int {
	return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.namespace, b.namespace))
}
