// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

const (
	streams  = 3
	replicas = 2
	clients  = 4
)

var keys = []string{"a/1", "a/2", "a/3", "b/1", "b/2"}

// world is the truth: inputs of several streams with revisions of one counter, or of one
// for each.
type world struct {
	rand     *rand.Rand
	several  bool
	revision [streams]uint64
	streams  [][]input
	state    []map[string]string // by stream: the present value of each key
	timed    map[string]bool     // the keys that time has changed
	local    map[string]bool     // the keys that follow from what a replica has seen
	tags     uint16
	log      []string
	between  func() // is called between two parts of what a replica applies; nil: nothing is
	last     string // the key that was written last
}

type input struct {
	revision uint64
	key      string
	value    string // "": it has gone
}

func (w *world) write() {
	s, key, more := w.rand.IntN(streams), keys[w.rand.IntN(len(keys))], 1+w.rand.Uint64N(3)
	if w.last != "" && w.rand.IntN(3) == 0 { // objects change some times in a row
		s, key = 0, w.last
	}
	w.last = key
	for i := range w.revision {
		if i == s || !w.several {
			w.revision[i] += more
		}
	}
	value := fmt.Sprint(w.rand.IntN(4))
	if w.rand.IntN(4) == 0 {
		if w.state[s][key] == "" {
			return
		}
		value = ""
	}
	w.streams[s] = append(w.streams[s], input{w.revision[s], key, value})
	set(w.state[s], key, value)
}

func (w *world) note(format string, args ...any) { w.log = append(w.log, fmt.Sprintf(format, args...)) }

func set(m map[string]string, key, value string) {
	if value == "" {
		delete(m, key)
	} else {
		m[key] = value
	}
}

func replay(inputs []input) map[string]string {
	state := map[string]string{}
	for _, in := range inputs {
		set(state, in.key, in.value)
	}
	return state
}

// object is computed from all streams and from the time; it exists when the first has the
// key.
func object(state []map[string]string, timed map[string]bool, key string) *configMap {
	if state[0][key] == "" {
		return nil
	}
	parts := make([]string, streams)
	for s := range state {
		parts[s] = state[s][key]
	}
	value := strings.Join(parts, ",")
	if timed[key] {
		value += ",late"
	}
	return newObject(key, value)
}

// replica applies the streams, each in order and at its own pace.
type replica struct {
	world *world
	cache *Cache[*configMap]
	state []map[string]string
	timed map[string]bool // it sees at its own pace what time does
	// doubts are the local keys that it alone shows otherwise, until it finds that there was no reason.
	doubts map[string]bool
	touch  []map[string]uint64
	at     []int    // by stream: inputs applied
	seen   []uint64 // by stream: revision of the last input or bookmark
}

func (w *world) newReplica() *replica {
	r := &replica{world: w}
	r.start()
	return r
}

// start lists all streams, each at a revision of its own.
func (r *replica) start() {
	w := r.world
	defer func() {
		w.note("start tag %d seen %v state %v floor %d", r.cache.Tag, r.seen, r.state, r.cache.now.floor)
	}()
	if r.cache != nil {
		r.cache.Reset()
	}
	r.cache = newTestCache(w.tags)
	w.tags++
	r.cache.MinEvents, r.cache.MaxEvents = 4, 8+w.rand.IntN(40)
	r.state, r.at, r.seen = make([]map[string]string, streams), make([]int, streams), make([]uint64, streams)
	r.touch, r.timed, r.doubts = make([]map[string]uint64, streams), maps.Clone(w.timed), map[string]bool{}
	for s := range streams {
		// A list may be older than what has been written last.
		behind := w.rand.IntN(3)
		r.at[s] = max(0, len(w.streams[s])-behind)
		r.state[s] = replay(w.streams[s][:r.at[s]])
		r.touch[s] = map[string]uint64{}
		r.seen[s] = r.upTo(s)
	}
	var objects []*configMap
	var timed []string
	for _, key := range keys {
		if o := r.object(key); o != nil {
			objects = append(objects, o)
			if r.isTimed(key) { // neighbours may show something else
				timed = append(timed, key)
			}
		}
	}
	r.cache.Replace(objects, timed, slices.Min(r.seen), slices.Max(r.seen))
}

// upTo is a revision up to which a stream is known when its next input has yet to come.
func (r *replica) upTo(s int) uint64 {
	inputs := r.world.streams[s]
	if r.at[s] < len(inputs) {
		return max(r.last(s), inputs[r.at[s]].revision-1)
	}
	return r.world.revision[s]
}

func (r *replica) last(s int) uint64 {
	if r.at[s] == 0 {
		return 0
	}
	return r.world.streams[s][r.at[s]-1].revision
}

// apply applies the next input of a stream.
func (r *replica) apply(s int) {
	if r.at[s] == len(r.world.streams[s]) {
		return
	}
	in := r.world.streams[s][r.at[s]]
	r.at[s]++
	defer func() { r.world.note("apply tag %d stream %d %v seen %v", r.cache.Tag, s, in, r.seen) }()
	r.seen[s] = max(r.seen[s], in.revision)
	set(r.state[s], in.key, in.value)
	r.touch[s][in.key] = in.revision
	r.cache.Apply(slices.Min(r.seen), []Change[*configMap]{r.change(in.key)})
}

// publish applies what one input or several have changed, in parts. Who has seen a part has seen
// no more than before.
func (r *replica) publish(before uint64, changes []Change[*configMap]) {
	for len(changes) > 1 && r.world.rand.IntN(2) == 0 {
		n := 1 + r.world.rand.IntN(len(changes)-1)
		r.cache.Apply(before, changes[:n])
		changes = changes[n:]
		r.world.between()
	}
	r.cache.Apply(slices.Min(r.seen), changes)
}

// applySeveral applies the next inputs of some streams as one, as one who is late may: objects are
// not shown in states between. But a state in which others may have shown an object by what the
// first stream alone decides is.
func (r *replica) applySeveral() {
	before := slices.Min(r.seen)
	var touched []string
	first := r.world.rand.IntN(2) == 0
	for range 2 + r.world.rand.IntN(4) {
		s := r.world.rand.IntN(streams)
		if first {
			s = 0
		}
		if r.at[s] == len(r.world.streams[s]) {
			continue
		}
		in := r.world.streams[s][r.at[s]]
		if slices.Contains(touched, in.key) {
			if was := r.state[0][in.key]; s == 0 && (was == "" || was != in.value) {
				break
			}
		} else {
			touched = append(touched, in.key)
		}
		r.at[s]++
		r.seen[s] = max(r.seen[s], in.revision)
		set(r.state[s], in.key, in.value)
		r.touch[s][in.key] = in.revision
		r.world.note("apply with others tag %d stream %d %v seen %v", r.cache.Tag, s, in, r.seen)
	}
	var changes []Change[*configMap]
	for _, key := range touched {
		change := r.change(key)
		change.Cause = slices.Max(r.seen)
		changes = append(changes, change)
	}
	r.publish(before, changes)
}

// change returns what an input has done to an object. Its cause is the highest of all
// inputs that the object depends on, or one that is not lower.
func (r *replica) change(key string) Change[*configMap] {
	var cause uint64
	if r.world.rand.IntN(2) == 0 {
		cause = slices.Max(r.seen)
	}
	for s := range streams {
		cause = max(cause, r.touch[s][key])
	}
	return Change[*configMap]{Key: key, Object: r.object(key), Cause: cause, Timed: r.isTimed(key)}
}

// recheck renders an object again because time has passed.
func (r *replica) recheck(key string) {
	r.timed[key] = r.world.timed[key]
	r.world.note("recheck tag %d %s", r.cache.Tag, key)
	r.cache.Apply(slices.Min(r.seen), []Change[*configMap]{{Key: key, Object: r.object(key), Cause: Always, Timed: r.isTimed(key)}})
}

// object is object for what this replica shows.
func (r *replica) object(key string) *configMap {
	o := object(r.state, r.timed, key)
	if o != nil && r.doubts[key] {
		o.value += ",doubt"
	}
	return o
}

func (r *replica) isTimed(key string) bool { return r.timed[key] || r.world.local[key] }

// doubt begins to show an object as no other replica does, or ends that. An input has made it do so, or nothing
// that others know of.
func (r *replica) doubt(key string, begin bool) {
	r.doubts[key] = begin
	r.world.note("doubt tag %d %s: %v", r.cache.Tag, key, begin)
	r.recheck(key)
}

// bookmark tells how far a stream is.
func (r *replica) bookmark(s int) {
	r.seen[s] = max(r.seen[s], r.upTo(s))
	r.world.note("bookmark tag %d stream %d seen %v", r.cache.Tag, s, r.seen)
	r.cache.Progress(slices.Min(r.seen))
}

// ask asks for the current revision, which means something if there is one counter.
func (r *replica) ask() {
	if r.world.several {
		return
	}
	pass(time.Nanosecond)
	r.world.note("tag %d asks at %v", r.cache.Tag, r.world.revision)
	r.cache.Current(slices.Max(r.world.revision[:]), time.Now())
}

// relist loses a stream and lists it again: what happened in between is not seen.
func (r *replica) relist(s int) {
	inputs := r.world.streams[s]
	ahead := r.at[s] + r.world.rand.IntN(len(inputs)-r.at[s]+1)
	touched := map[string]bool{}
	for _, in := range inputs[r.at[s]:ahead] {
		touched[in.key] = true
	}
	before, watermark := maps.Clone(r.state[s]), slices.Min(r.seen)
	r.at[s] = ahead
	r.state[s] = replay(inputs[:ahead])
	r.seen[s] = max(r.seen[s], r.upTo(s))
	var changes []Change[*configMap]
	for _, key := range slices.Sorted(maps.Keys(touched)) {
		if before[key] != "" || r.state[s][key] != "" { // else it has come and gone unseen
			r.touch[s][key] = r.seen[s]
			changes = append(changes, r.change(key))
		}
	}
	r.world.note("relist tag %d stream %d seen %v", r.cache.Tag, s, r.seen)
	r.cache.Relisted(r.seen[s])
	r.publish(watermark, changes)
}
