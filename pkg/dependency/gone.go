// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"container/list"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/lru"
)

// What is remembered of deleted sources is bounded for each namespace, so that deletions in one namespace
// neither cost memory that others need nor make anything forgotten elsewhere, but for the last bound:
//
//   - When a source was deleted that workloads refer to by name, as long as one of them does. The names
//     are in the workloads, so these entries are bounded by their bytes, whatever their age.
//   - What such a source contained, up to maxGoneBytes in a namespace. Of those that were deleted first,
//     the content is forgotten: all that they had counts as changed when they were deleted.
//   - When sources were deleted last, for the workloads and the globs that begin to name them: the last
//     maxDeletions in a namespace, and those of maxDeletionNamespaces namespaces. Any other source that is
//     absent when something begins to name it may have been deleted as late as the last deletion
//     that was forgotten.
//
// So what is forgotten only makes changes later and more than they were: in doubt, pods are looked up or
// restarted.
const (
	maxGoneBytes          = 2 << 20
	maxDeletions          = 256
	maxDeletionNamespaces = 512
)

// goneSource is a deleted source, with its last state and the time of its deletion.
type goneSource struct {
	*Source
	change Change
}

// Deleted returns what was known about a source that has been deleted, or nil.
func (g *Graph) Deleted(key SourceKey) *Source { return g.goneOf(key).Source }

// DeletedBefore returns what was known about a deleted source, for a new one of the same name; nil: there was none. If
// no workload referred to it, only an upper bound of the time of its deletion is known.
func (g *Graph) DeletedBefore(key SourceKey) *Source {
	if gone := g.goneOf(key); gone.Source != nil {
		return gone.Source
	}
	change := g.unused.get(key)
	if change == (Change{}) {
		change = g.lastDeletion(key)
	}
	if change == (Change{}) {
		return nil
	}
	return (&Source{SourceKey: key}).withoutContent(change)
}

// goneOf returns a source that has been deleted, or the zero value.
func (g *Graph) goneOf(key SourceKey) goneSource { return g.gone.get(key) }

// setGone remembers a source that has been deleted.
func (g *Graph) setGone(was *Source, change Change) {
	g.gone.set(&was.SourceKey, goneSource{was, change})
	c := g.goneContents[was.Namespace]
	if c == nil {
		c = &goneContents{elements: map[SourceKey]*list.Element{}}
		g.goneContents[was.Namespace] = c
	}
	for _, key := range c.add(was, g.bounds.goneBytes) {
		gone := g.goneOf(key)
		without := gone.withoutContent(gone.change)
		g.gone.set(&without.SourceKey, goneSource{without, gone.change})
	}
	g.dropEmpty(was.Namespace, c)
}

// forgetGone drops what is known about a deleted source.
func (g *Graph) forgetGone(key SourceKey) {
	if g.goneOf(key).Source != nil {
		g.gone.delete(key)
		if c := g.goneContents[key.Namespace]; c != nil {
			c.remove(key)
			g.dropEmpty(key.Namespace, c)
		}
	}
	if g.unused.get(key) != (Change{}) {
		g.unused.delete(key)
	}
}

func (g *Graph) dropEmpty(namespace string, c *goneContents) {
	if len(c.elements) == 0 {
		delete(g.goneContents, namespace)
	}
}

// goneContents are the deleted sources of a namespace whose content is remembered.
type goneContents struct {
	bytes    int
	list     list.List // of goneContent, the earliest deletion first
	elements map[SourceKey]*list.Element
}

type goneContent struct {
	key   SourceKey
	bytes int
}

// add adds a source and returns the sources whose content has to be forgotten to stay within the limit
// of bytes.
func (c *goneContents) add(s *Source, most int) (forget []SourceKey) {
	c.remove(s.SourceKey)
	own := goneContent{s.SourceKey, s.contentBytes(most)}
	c.elements[own.key] = c.list.PushBack(own)
	for c.bytes += own.bytes; c.bytes > most; {
		first := c.list.Front().Value.(goneContent)
		c.remove(first.key)
		forget = append(forget, first.key)
	}
	return forget
}

func (c *goneContents) remove(key SourceKey) {
	if e := c.elements[key]; e != nil {
		c.bytes -= c.list.Remove(e).(goneContent).bytes
		delete(c.elements, key)
	}
}

// contentBytes returns approximately how many bytes it takes to remember the content of a source. It stops
// counting at most.
func (s *Source) contentBytes(most int) int {
	h := s.history()
	n := 512 + 96*len(h.removed) + 64*len(h.episodes)
	add := func(keys []KeyDigest) {
		for i := range keys {
			if n += 72 + len(keys[i].Key); n > most {
				return
			}
		}
	}
	add(s.Keys)
	if h.first != nil {
		add(*h.first)
	}
	for i := range h.past {
		n += 512
		add(h.past[i].Keys)
	}
	return n
}

// withoutContent returns a source that was deleted without its content: any key that a reference reads may
// have been removed with it, and it may have changed before.
func (s *Source) withoutContent(deletion Change) *Source {
	h := s.history()
	return &Source{
		SourceKey:   s.SourceKey,
		SourceMarks: s.SourceMarks,
		MatchAt:     s.MatchAt,
		Change:      deletion,
		deletedAt:   s.deletedAt,
		unknown:     true,
		earlier: &history{
			removed:     []removedKey{{version: deletion.Version}},
			episodes:    slices.Clone(h.episodes[max(0, len(h.episodes)-1):]),
			changedMore: h.changedMore || len(h.episodes) > 1,
			first:       unknownKeys,
		},
	}
}

// unknownKeys represents content that has been forgotten.
var unknownKeys = &[]KeyDigest{}

// deletion is that of a source.
type deletion struct {
	SourceKey
	change  Change
	ignored bool // it was ignored
}

// deletions are those of the sources of a namespace.
type deletions struct {
	last   []deletion // each source once
	keys   sets.Set[SourceKey]
	before Change // no earlier than those that are not remembered
}

// of returns the deletion of a source, or the bound for deletions that are not
// remembered.
func (d *deletions) of(key SourceKey) Change {
	if i := d.find(key); i >= 0 {
		return d.last[i].change
	}
	return d.before
}

func (d *deletions) find(key SourceKey) int {
	if !d.keys.Has(key) { // a template may name many
		return -1
	}
	return slices.IndexFunc(d.last, func(other deletion) bool { return other.SourceKey == key })
}

func (d *deletions) add(one deletion) {
	if i := d.find(one.SourceKey); i >= 0 {
		d.last = slices.Delete(d.last, i, i+1)
	}
	d.last = append(d.last, one)
	d.keys.Insert(one.SourceKey)
}

// forget drops the earliest deletions until the given number is left.
func (d *deletions) forget(left int) {
	for ; len(d.last) > left; d.last = d.last[1:] {
		d.keys.Delete(d.last[0].SourceKey)
		d.before = noEarlier(d.before, d.last[0].change)
	}
}

// noEarlier returns a change that is no earlier than any of two, in any order.
func noEarlier(a, b Change) Change {
	seen := a.Seen
	if b.Seen.After(seen) {
		seen = b.Seen
	}
	return Change{Version: max(a.Version, b.Version), Seen: seen, Order: max(a.Order, b.Order)}
}

// deletionsIn returns the last deletions in a namespace; nil: no more is known than deletedElsewhere.
func (g *Graph) deletionsIn(namespace string) *deletions {
	if found, ok := g.deletions.Get(namespace); ok {
		return found.(*deletions)
	}
	return nil
}

// noteDeletion remembers only the time of a deletion: the workload that names the source may be read only
// afterwards, on another stream.
func (g *Graph) noteDeletion(one deletion) {
	d := g.deletionsIn(one.Namespace)
	if d == nil {
		d = &deletions{keys: sets.New[SourceKey](), before: g.deletedElsewhere}
		g.deletions.Add(one.Namespace, d)
	}
	d.add(one)
	d.forget(g.bounds.deletions)
}

// newDeletions returns a cache that has a graph note what it forgets.
func (g *Graph) newDeletions(namespaces int) *lru.Cache {
	return lru.NewWithEvictionFunc(namespaces, func(_ lru.Key, value any) {
		d := value.(*deletions)
		d.forget(0)
		g.deletedElsewhere = noEarlier(g.deletedElsewhere, d.before)
	})
}

// beginUse remembers of the sources that a workload begins to refer to when they may last have been deleted,
// if they are absent and no other workload refers to them.
func (g *Graph) beginUse(before, now use) {
	if g.deletions.Len() == 0 && g.deletedElsewhere == (Change{}) {
		return
	}
	var known []Reference
	if before.workload != nil {
		known = before.workload.References
	}
	for i := range now.workload.References {
		if r := &now.workload.References[i]; i >= len(known) || known[i].Kind != r.Kind || known[i].Name != r.Name {
			g.beginUseOf(SourceKey{r.Kind, now.workload.Namespace, r.Name})
		}
	}
	if now.extra != nil && now.extra != before.extra {
		for i := range now.extra.references {
			r := &now.extra.references[i]
			g.beginUseOf(SourceKey{r.Kind, now.workload.Namespace, r.Name})
		}
	}
}

func (g *Graph) beginUseOf(key SourceKey) {
	if g.sources.get(key) != nil || g.users.any(key) {
		return
	}
	if change := g.lastDeletion(key); change != (Change{}) {
		g.unused.set(&key, change)
	}
}

// lastDeletion returns a bound on when a source that is absent was deleted; zero: it was not.
func (g *Graph) lastDeletion(key SourceKey) Change {
	if d := g.deletionsIn(key.Namespace); d != nil {
		return d.of(key)
	}
	return g.deletedElsewhere
}

// endUseOf drops what is known about a deleted source if no workload refers to it any longer.
func (g *Graph) endUseOf(key SourceKey) {
	gone, unused := g.goneOf(key), g.unused.get(key)
	if gone.Source == nil && unused == (Change{}) || g.users.any(key) {
		return
	}
	if gone.Source != nil {
		g.noteDeletion(deletion{key, gone.change, gone.Ignored})
	} else if d := g.deletionsIn(key.Namespace); d == nil || noEarlier(d.before, unused) != d.before {
		g.noteDeletion(deletion{key, unused, false})
	}
	g.forgetGone(key)
}

// UnusedDeletion returns a bound on when an absent source was deleted, if that was before the workloads that refer to it
// began to do so; zero: it was not. One of them may have referred to it before, or may have been read only afterwards.
func (g *Graph) UnusedDeletion(key SourceKey) Change { return g.unused.get(key) }

// missingSince returns an upper bound on when a source that a workload refers to began to be missing, as a
// resourceVersion; 0: before anything was read.
func (g *Graph) missingSince(key SourceKey) uint64 {
	if gone := g.goneOf(key); gone.Source != nil {
		return gone.change.Version
	}
	return g.unused.get(key).Version
}

// changed returns when a source first and last changed, of the changes that count, and how often. It may have changed
// more often than is known; then the first is zero, as it is when that is not remembered. See Graph.ChangedSince.
func (s *Source) changed(counts func(Moment) bool) (first, last time.Time, times int, live bool) {
	if s == nil {
		return time.Time{}, time.Time{}, 0, true
	}
	live = true
	h := s.history()
	for i := range h.episodes {
		e := &h.episodes[i]
		switch {
		case !counts(e.Moment):
			continue
		case times > 0:
		case i == 0 && h.changedMore:
			times, live = times+1, false
		case i > 0 || len(h.episodes) < maxEpisodes:
			first = e.at
		}
		last, live = e.at, live && !e.listed
		times++
	}
	return first, last, times, live
}
