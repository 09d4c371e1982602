// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"context"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/registry/watchcache"
)

// step is something that has to be rendered: what one input has changed, or several.
type step[K comparable] struct {
	now     decide.Evaluator // without a graph: as it was
	at      dependency.Progress
	synced  bool // everything has to be
	timed   bool // time has passed, and nothing else has happened
	items   []K
	touched sets.Set[K] // the same; nil: it has not been asked for
}

// maxPiece is how many items are published at once. Others of the same step may follow: that a
// client has seen all of it is said with the last.
const maxPiece = 256

// maxBacklog is how many steps wait while each input is a step of its own. Beyond that, inputs are
// taken together, so that an item is not rendered again and again in states that have passed.
const maxBacklog = 64

// Synced implements ingest.Sink.
func (v *View[K, O, P]) Synced(now decide.Evaluator, at dependency.Progress) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.push(&step[K]{now: now, at: at, synced: true})
}

// Changed implements ingest.Sink.
func (v *View[K, O, P]) Changed(now decide.Evaluator, at dependency.Progress, delta dependency.Delta) {
	items := v.renderer.Concerned(now, delta)
	v.mu.Lock()
	defer v.mu.Unlock()
	if n := len(v.queue); n >= v.backlog && v.join(v.queue[n-1], now, at, items) {
		return
	}
	v.push(&step[K]{now: now, at: at, items: items})
}

// Progressed implements ingest.Sink.
func (v *View[K, O, P]) Progressed(at dependency.Progress) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if n := len(v.queue); n > 0 && !v.queue[n-1].timed {
		v.queue[n-1].at = at // what is rendered then is as it was
		return
	}
	v.push(&step[K]{at: at})
}

// recheck has an item rendered again, as time may have changed it.
func (v *View[K, O, P]) recheck(item K) { v.Recheck([]K{item}) }

// Recheck has items rendered again that were shown as timed (see Rendered).
func (v *View[K, O, P]) Recheck(items []K) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.push(&step[K]{timed: true, items: items})
}

// push adds a step to the queue. The lock is held.
func (v *View[K, O, P]) push(s *step[K]) {
	v.queue = append(v.queue, s)
	select {
	case v.more <- struct{}{}:
	default:
	}
}

// pop returns the next step; nil: there is none.
func (v *View[K, O, P]) pop() (s *step[K], life int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.queue) > 0 {
		s, v.queue = v.queue[0], v.queue[1:]
	}
	return s, v.lives
}

// join takes another input into a step, unless an item would be passed over in a state in which
// other replicas may have shown it by its labels: clients that select by those rely on having
// been told of it (see watchcache.WatchOptions). All other states may be passed over. No input is taken into
// the rendering of everything: clients that come from other replicas have to be told of it by an event.
func (v *View[K, O, P]) join(s *step[K], now decide.Evaluator, at dependency.Progress, items []K) bool {
	if s.timed || s.synced {
		return false
	}
	if s.touched == nil {
		s.touched = sets.New(s.items...)
	}
	for _, item := range items {
		if s.touched.Has(item) && !v.renderer.Alike(s.now, now, item) {
			return false
		}
	}
	for _, item := range items {
		if !s.touched.Has(item) {
			s.touched.Insert(item)
			s.items = append(s.items, item)
		}
	}
	s.now, s.at = now, at
	return true
}

// CatchUp renders all that the view has been told of, or until the context is done. Run does it by itself.
func (v *View[K, O, P]) CatchUp(ctx context.Context) {
	v.rendering.Lock()
	defer v.rendering.Unlock()
	for ctx.Err() == nil {
		s, life := v.pop()
		if s == nil {
			break
		}
		t := &taking[K, O, P]{View: v, ctx: ctx, life: life}
		switch {
		case s.synced:
			t.everything(s)
		case s.timed:
			t.again(s)
		default:
			t.changes(s)
		}
	}
	if v.waiting.Len() == 0 {
		v.now = decide.Evaluator{}
	}
}

// taking is the taking of a step, which ends when everything is forgotten meanwhile.
type taking[K comparable, O any, P Object[O]] struct {
	*View[K, O, P]
	ctx  context.Context
	life int
}

// ended reports whether what is being rendered is of no use any more.
func (t *taking[K, O, P]) ended() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ctx.Err() != nil || t.life != t.lives
}

// everything renders all items in the place of the objects that were shown.
func (t *taking[K, O, P]) everything(s *step[K]) {
	t.now, t.progress = s.now, s.at
	states := map[string]int{}
	var objects []P
	var timed []string
	var items []K
	t.renderer.Each(s.now, func(item K) { items = append(items, item) })
	for i, item := range items {
		if i%t.piece == 0 && t.ended() {
			return
		}
		r := t.render(item)
		if r.Object == nil {
			continue
		}
		states[t.renderer.State(r.Object)]++
		objects = append(objects, r.Object)
		if r.Timed {
			timed = append(timed, t.key(item))
		}
	}
	t.neighbours(s.at)
	t.cache.Replace(objects, timed, s.at.Watermark, s.at.Floor)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.states = states
}

// changes renders what one input has changed, or some.
func (t *taking[K, O, P]) changes(s *step[K]) {
	before := t.progress.Watermark
	if s.now.Graph != nil {
		t.now = s.now
	}
	t.advance(s.at)
	for len(s.items) > t.piece {
		// Who has seen this has not seen all of the input.
		// Nothing that an object is computed from is newer than the latest revision.
		if !t.publish(before, s.items[:t.piece], s.at.Latest) {
			return
		}
		s.items = s.items[t.piece:]
	}
	t.publish(s.at.Watermark, s.items, s.at.Latest)
}

// again renders what may have changed with the time.
func (t *taking[K, O, P]) again(s *step[K]) {
	t.waiting.Delete(s.items...)
	if t.now.Graph != nil { // else everything has been forgotten meanwhile
		t.publish(t.progress.Watermark, s.items, watchcache.Always)
	}
}

// publish renders some items into the cache. It returns false when everything has been
// forgotten.
func (t *taking[K, O, P]) publish(watermark uint64, items []K, cause uint64) bool {
	if t.ended() {
		return false
	}
	changes := make([]watchcache.Change[P], 0, len(items))
	more := map[string]int{}
	for _, item := range items {
		c := watchcache.Change[P]{Key: t.key(item), Cause: cause}
		old, found := t.cache.Peek(c.Key)
		r := t.render(item)
		if o := r.Object; o != nil {
			if found && cause == watchcache.Always && t.renderer.Same(o, old) {
				continue
			}
			if found {
				t.renderer.Share(o, old)
			}
			more[t.renderer.State(o)]++
			c.Object, c.Timed = o, r.Timed
		}
		if found {
			more[t.renderer.State(old)]--
		}
		changes = append(changes, c)
	}
	if len(changes) == 0 && cause == watchcache.Always {
		return true
	}
	t.cache.Apply(watermark, changes)
	t.mu.Lock()
	defer t.mu.Unlock()
	for state, n := range more {
		t.states[state] += n
	}
	return true
}

// render renders an item, and sees to it that it is rendered again when time changes it.
func (t *taking[K, O, P]) render(item K) Rendered[O] {
	now := t.clock.Now()
	r := t.renderer.Render(t.now, item, now)
	if !r.Next.IsZero() {
		t.waiting.Insert(item)
		t.due.AddAfter(item, r.Next.Sub(now))
	}
	return r
}

// advance notes what the progress says about other replicas.
func (t *taking[K, O, P]) advance(at dependency.Progress) {
	if at.Floor > t.progress.Floor {
		t.cache.Relisted(at.Floor)
	}
	if at.OneCounter != t.progress.OneCounter || at.SeveralCounters != t.progress.SeveralCounters {
		t.neighbours(at)
	}
	if at.Asked != t.progress.Asked {
		t.cache.Current(at.Current, at.Asked)
	}
	t.progress = at
}
