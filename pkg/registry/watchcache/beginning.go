// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"slices"
	"sync"
)

// chunkSize is how many objects a watch that begins takes at once.
const chunkSize = 64

// Encodings of what watches begin with are kept of so many objects, if one of each has at most so many
// bytes. That is a small part of what all of them may have.
const (
	shareBeginning      = 32768
	shareBeginningBytes = 32 << 20
)

// beginning lets the watches that begin at the same time share encodings of what they begin with, as
// after a replica has gone. Clients rely on no order in it. So it is cut into chunks, of which some are
// open: those of which encodings are kept. Each watch first sends what it has not sent of these, and
// then opens another chunk, in the place of the oldest. So one that is slower than others has the
// chunks encoded again that it has missed, and all encodings together have a bound. Nothing is kept
// after the last of the watches has begun.
type beginning[T Object] struct {
	config *Config[T]

	mu      sync.Mutex // guards what follows, and what groups and chunks have
	watches int
	groups  map[groupKey]*group[T]
	open    []*chunk[T] // the oldest first
	objects int         // of which encodings are kept
	bytes   int         // about how many bytes one of each has
}

// groupKey says with what a watch begins: with all objects of a scope, or with events to catch up.
type groupKey struct {
	scope   string
	catchUp bool
}

// group are the watches that begin with the same at the same time.
type group[T Object] struct {
	watches int
	keys    []string    // with which chunks begin
	chunks  []*chunk[T] // nil: not open
	open    []*chunk[T] // those of beginning.open
	next    int         // to open
}

// chunk is what is shared of the objects with some keys.
type chunk[T Object] struct {
	*beginning[T]

	group   *group[T]
	number  int
	shared  map[T]*encodedOnce[T]
	isOpen  bool
	encoded int // about how many bytes one encoding of each has
}

// enter notes that a watch begins. If it is the first of its group, chunks returns the keys with which
// they begin, of which there is at least one. It is called without the lock, as it looks at all objects.
func (b *beginning[T]) enter(k groupKey, chunks func() []string) *part[T] {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.groups[k] == nil {
		b.mu.Unlock()
		keys := chunks()
		b.mu.Lock()
		if b.groups == nil {
			b.groups = map[groupKey]*group[T]{}
		}
		if b.groups[k] == nil { // no other watch was faster
			b.groups[k] = &group[T]{keys: keys, chunks: make([]*chunk[T], len(keys))}
		}
	}
	g := b.groups[k]
	b.watches++
	g.watches++
	return &part[T]{beginning: b, key: k, group: g, sent: make([]bool, len(g.keys)), left: len(g.keys)}
}

// chunks returns the keys with which chunks of a scope begin.
func (t *trees[T]) chunks(within scope) []string {
	keys := []string{within.String()}
	n := 0
	t.objects.AscendGreaterOrEqual(item[T]{key: keys[0]}, func(i item[T]) bool {
		if !within.has(i.key) {
			return false
		}
		if n++; n > chunkSize {
			keys, n = append(keys, i.key), 1
		}
		return true
	})
	return keys
}

// part is what one watch has yet to send at first.
type part[T Object] struct {
	*beginning[T]

	key   groupKey
	group *group[T]
	sent  []bool // by chunk
	left  int    // of them
}

// leave notes that a watch has begun, or ended before.
func (p *part[T]) leave() {
	b := p.beginning
	b.mu.Lock()
	defer b.mu.Unlock()
	b.watches--
	if p.group.watches--; p.group.watches == 0 {
		delete(b.groups, p.key)
	}
	if b.watches == 0 {
		b.groups, b.open, b.objects, b.bytes = nil, nil, 0, 0
	}
}

// next returns the chunk that is to be sent next: its objects have keys from one on and before another
// one, which is empty for the last. It returns false when all have been sent. The chunk is nil while
// no other watch begins.
func (p *part[T]) next() (c *chunk[T], from, until string, ok bool) {
	if p.left == 0 {
		return nil, "", "", false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	g := p.group
	var n int
	if i := slices.IndexFunc(g.open, func(c *chunk[T]) bool { return !p.sent[c.number] }); i >= 0 {
		n = g.open[i].number
	} else {
		n = g.next % len(g.keys)
		for p.sent[n] {
			n = (n + 1) % len(g.keys)
		}
		g.next = n + 1
		if p.watches > 1 {
			g.chunks[n] = &chunk[T]{beginning: p.beginning, group: g, number: n, shared: map[T]*encodedOnce[T]{}, isOpen: true}
			p.open, g.open = append(p.open, g.chunks[n]), append(g.open, g.chunks[n])
		}
	}
	p.sent[n] = true
	p.left--
	if n+1 < len(g.keys) {
		until = g.keys[n+1]
	}
	return g.chunks[n], g.keys[n], until, true
}

// share returns what watches send of some objects of a chunk.
func (c *chunk[T]) share(objects []T) []*encodedOnce[T] {
	c.mu.Lock()
	defer c.mu.Unlock()
	var none T
	out := make([]*encodedOnce[T], len(objects))
	for i, o := range objects {
		if out[i] = c.shared[o]; out[i] != nil {
			continue
		}
		out[i] = once(c.config.Copy, o)
		c.shared[o] = out[i]
		if c.isOpen { // else others do not find it
			size := c.config.Size(o, none)
			c.encoded += size
			c.bytes += size
			c.objects++
		}
	}
	for len(c.open) > 1 && (c.objects > shareBeginning || c.bytes > shareBeginningBytes) {
		c.closeOldest()
	}
	return out
}

// closeOldest lets go of what is shared of the oldest chunk, but for what watches are sending.
func (b *beginning[T]) closeOldest() {
	c := b.open[0]
	b.open, c.group.open = b.open[1:], c.group.open[1:] // the oldest of all is that of its group as well
	c.isOpen, c.group.chunks[c.number] = false, nil
	b.bytes -= c.encoded
	b.objects -= len(c.shared)
}
