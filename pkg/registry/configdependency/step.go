// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package configdependency

import (
	"context"
	"maps"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/registry/watchcache"
)

// step is something that has to be rendered: what one input has changed, or several.
type step struct {
	now       policy.Evaluator // without a graph: as it was
	at        dependency.Progress
	synced    bool // everything has to be
	timed     bool // time has passed, and nothing else has happened
	workloads []dependency.WorkloadKey
	touched   sets.Set[dependency.WorkloadKey] // the same; nil: it has not been asked for
}

// maxPiece is how many workloads are published at once. Others of the same step may follow: that a
// client has seen all of it is said with the last.
const maxPiece = 256

// maxBacklog is how many steps wait while each input is a step of its own. Beyond that, inputs are
// taken together, so that a workload is not rendered again and again in states that have passed.
const maxBacklog = 64

// Synced implements ingest.Sink.
func (v *Views) Synced(now policy.Evaluator, at dependency.Progress) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.push(&step{now: now, at: at, synced: true})
}

// Changed implements ingest.Sink.
func (v *Views) Changed(now policy.Evaluator, at dependency.Progress, delta dependency.Delta) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if n := len(v.queue); n >= v.backlog && v.queue[n-1].join(now, at, delta.Workloads) {
		return
	}
	v.push(&step{now: now, at: at, workloads: delta.Workloads})
}

// TellsOfSources implements ingest.Sink.
func (*Views) TellsOfSources() bool { return false }

// Progressed implements ingest.Sink.
func (v *Views) Progressed(at dependency.Progress) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if n := len(v.queue); n > 0 && !v.queue[n-1].timed {
		v.queue[n-1].at = at // what is rendered then is as it was
		return
	}
	v.push(&step{at: at})
}

// recheck has a workload rendered again, as time may have changed it.
func (v *Views) recheck(key dependency.WorkloadKey) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.push(&step{timed: true, workloads: []dependency.WorkloadKey{key}})
}

// push adds a step to the queue. The lock is held.
func (v *Views) push(s *step) {
	v.queue = append(v.queue, s)
	select {
	case v.more <- struct{}{}:
	default:
	}
}

// pop returns the next step; nil: there is none.
func (v *Views) pop() (s *step, life int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.queue) > 0 {
		s, v.queue = v.queue[0], v.queue[1:]
	}
	return s, v.lives
}

// join takes another input into a step, unless a workload would be passed over in a state in which
// other replicas may have shown it by its labels: clients that select by those rely on having
// been told of it (see watchcache.WatchOptions). All other states may be passed over.
func (s *step) join(now policy.Evaluator, at dependency.Progress, workloads []dependency.WorkloadKey) bool {
	if s.timed {
		return false
	}
	if s.touched == nil {
		s.touched = sets.New(s.workloads...)
	}
	for _, key := range workloads {
		if s.touched.Has(key) && !alike(s.now.Graph.Workload(key), now.Graph.Workload(key)) {
			return false
		}
	}
	for _, key := range workloads {
		if !s.touched.Has(key) {
			s.touched.Insert(key)
			s.workloads = append(s.workloads, key)
		}
	}
	s.now, s.at = now, at
	return true
}

// alike reports whether selectors that read the workload alone match both of two states of one.
func alike(a, b *dependency.Workload) bool {
	return a != nil && b != nil && a.UID == b.UID && maps.Equal(a.Labels, b.Labels)
}

// catchUp renders all that is in the queue, or until the context is done.
func (v *Views) catchUp(ctx context.Context) {
	v.rendering.Lock()
	defer v.rendering.Unlock()
	for ctx.Err() == nil {
		s, life := v.pop()
		if s == nil {
			break
		}
		r := &renderer{Views: v, ctx: ctx, life: life}
		switch {
		case s.synced:
			r.everything(s)
		case s.timed:
			r.again(s)
		default:
			r.changes(s)
		}
	}
	if v.waiting.Len() == 0 {
		v.now = policy.Evaluator{}
	}
}

// renderer takes steps, unless everything is forgotten meanwhile.
type renderer struct {
	*Views
	ctx  context.Context
	life int
}

// ended reports whether what is being rendered is of no use any more.
func (r *renderer) ended() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ctx.Err() != nil || r.life != r.lives
}

// everything renders all workloads in the place of what was there.
func (r *renderer) everything(s *step) {
	r.now, r.progress = s.now, s.at
	states := map[v1alpha1.State]int{}
	var objects []*v1alpha1.ConfigDependency
	var changing []watchcache.Change[*v1alpha1.ConfigDependency]
	var workloads []*dependency.Workload
	s.now.Graph.EachWorkload(func(w *dependency.Workload) { workloads = append(workloads, w) })
	for i, w := range workloads {
		if i%r.piece == 0 && r.ended() {
			return
		}
		o := r.render(w)
		states[o.Status.State]++
		objects = append(objects, o)
		if timed(o) {
			changing = append(changing, watchcache.Change[*v1alpha1.ConfigDependency]{Key: key(o.Namespace, o.Name), Object: o, Cause: watchcache.Always})
		}
	}
	r.neighbours(s.at)
	r.cache.Replace(objects, s.at.Watermark, s.at.Floor)
	// A neighbour that has been running for longer has seen when content changed, and may
	// show another state for a while. Its clients are to be told when they come here.
	r.cache.Apply(s.at.Watermark, changing)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.states = states
}

// changes renders what one input has changed, or some.
func (r *renderer) changes(s *step) {
	before := r.progress.Watermark
	if s.now.Graph != nil {
		r.now = s.now
	}
	r.advance(s.at)
	for len(s.workloads) > r.piece {
		// Who has seen this has not seen all of the input.
		// Nothing that an object is computed from is newer than the latest revision.
		if !r.publish(before, s.workloads[:r.piece], s.at.Latest) {
			return
		}
		s.workloads = s.workloads[r.piece:]
	}
	r.publish(s.at.Watermark, s.workloads, s.at.Latest)
}

// again renders what may have changed with the time.
func (r *renderer) again(s *step) {
	r.waiting.Delete(s.workloads...)
	if r.now.Graph != nil { // else everything has been forgotten meanwhile
		r.publish(r.progress.Watermark, s.workloads, watchcache.Always)
	}
}

// publish renders some workloads into the cache. It returns false when everything has been
// forgotten.
func (r *renderer) publish(watermark uint64, workloads []dependency.WorkloadKey, cause uint64) bool {
	if r.ended() {
		return false
	}
	changes := make([]watchcache.Change[*v1alpha1.ConfigDependency], 0, len(workloads))
	more := map[v1alpha1.State]int{}
	for _, w := range workloads {
		c := watchcache.Change[*v1alpha1.ConfigDependency]{Key: key(w.Namespace, w.ViewName()), Cause: cause}
		old, found := r.cache.Peek(c.Key)
		if w := r.now.Graph.Workload(w); w != nil {
			c.Object = r.render(w)
			if found && cause == watchcache.Always && equality.Semantic.DeepEqual(c.Object.Status, old.Status) {
				continue // time has changed nothing, and what is not of the status does not depend on it
			}
			if found {
				share(c.Object, old)
			}
			more[c.Object.Status.State]++
			c.Timed = timed(c.Object)
		}
		if found {
			more[old.Status.State]--
		}
		changes = append(changes, c)
	}
	if len(changes) == 0 && cause == watchcache.Always {
		return true
	}
	r.cache.Apply(watermark, changes)
	r.mu.Lock()
	defer r.mu.Unlock()
	for state, n := range more {
		r.states[state] += n
	}
	return true
}

// render renders a workload, and sees to it that it is rendered again when time changes it.
func (r *renderer) render(w *dependency.Workload) *v1alpha1.ConfigDependency {
	e := r.now.Evaluate(w)
	now := r.clock.Now()
	d := e.Decide(policy.Observed{Now: now, StandsBy: r.standby != nil && r.standby.StandsBy(), Inspected: r.found(w.WorkloadKey)})
	if !d.RecheckAt.IsZero() {
		r.waiting.Insert(w.WorkloadKey)
		r.due.AddAfter(w.WorkloadKey, d.RecheckAt.Sub(now))
	}
	return Render(e, d)
}

// found returns what this replica has found out about the pods of a workload while it stands by, or nil.
func (r *renderer) found(w dependency.WorkloadKey) *policy.Inspection {
	if r.standby == nil {
		return nil
	}
	return r.standby.Found(w)
}

// advance notes what the progress says about other replicas.
func (r *renderer) advance(at dependency.Progress) {
	if at.Floor > r.progress.Floor {
		r.cache.Relisted(at.Floor)
	}
	if at.OneCounter != r.progress.OneCounter || at.SeveralCounters != r.progress.SeveralCounters {
		r.neighbours(at)
	}
	if at.Asked != r.progress.Asked {
		r.cache.Current(at.Current, at.Asked)
	}
	r.progress = at
}
