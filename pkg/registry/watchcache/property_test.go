package watchcache

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/utils/clock"

	"github.com/configdep/configdep/test/seeds"
)

// TestClientConverges lets clients list from one replica and watch from another, through
// any interleaving of the inputs' delays, lost streams and restarts, and then compares
// what they hold with the truth.
func TestClientConverges(t *testing.T) {
	runHistories(t, 3000, false)
}

// TestClientConvergesWithSeveralCounters does so where each stream has revisions of its own
// counter, and replicas notice that at any time, or never: a watermark then tells of each
// stream how far it has arrived by its counter, so that nothing is wrong before they do.
func TestClientConvergesWithSeveralCounters(t *testing.T) {
	runHistories(t, 1000, true)
}

func runHistories(t *testing.T, n int, several bool) {
	t.Helper()
	seeds.Each(t, n, func(t *testing.T, seed uint64) {
		synctest.Test(t, func(t *testing.T) { runHistory(t, seed, several) })
	})
}

// world is the truth: inputs of several streams with revisions of one counter, or of one
// for each.
type world struct {
	rand     *rand.Rand
	several  bool
	revision [streams]uint64
	streams  [][]input
	state    []map[string]string // by stream: the present value of each key
	timed    map[string]bool     // the keys that time has changed
	tags     uint16
	log      []string
}

type input struct {
	revision uint64
	key      string
	value    string // "": it has gone
}

const (
	streams  = 3
	replicas = 2
	clients  = 4
)

var keys = []string{"a/1", "a/2", "a/3", "b/1", "b/2"}

func (w *world) write() {
	s, key, more := w.rand.IntN(streams), keys[w.rand.IntN(len(keys))], 1+w.rand.Uint64N(3)
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
	touch []map[string]uint64
	at    []int    // by stream: inputs applied
	seen  []uint64 // by stream: revision of the last input or bookmark
}

func (w *world) newReplica() *replica {
	r := &replica{world: w}
	r.start()
	return r
}

// start lists all streams, each at a revision of its own.
func (r *replica) start() {
	w := r.world
	defer func() { w.note("start tag %d seen %v state %v floor %d", r.cache.Tag, r.seen, r.state, r.cache.floor) }()
	if r.cache != nil {
		r.cache.Reset()
	}
	r.cache = newTestCache(w.tags)
	w.tags++
	r.cache.MinEvents, r.cache.MaxEvents = 4, 8+w.rand.IntN(40)
	r.state, r.at, r.seen = make([]map[string]string, streams), make([]int, streams), make([]uint64, streams)
	r.touch, r.timed = make([]map[string]uint64, streams), maps.Clone(w.timed)
	for s := range streams {
		// A list may be older than what has been written last.
		behind := w.rand.IntN(3)
		r.at[s] = max(0, len(w.streams[s])-behind)
		r.state[s] = replay(w.streams[s][:r.at[s]])
		r.touch[s] = map[string]uint64{}
		r.seen[s] = r.upTo(s)
	}
	var objects []*configMap
	for _, key := range keys {
		if o := object(r.state, r.timed, key); o != nil {
			objects = append(objects, o)
		}
	}
	r.cache.Replace(objects, slices.Min(r.seen), slices.Max(r.seen))
	for key := range r.timed { // neighbours may see it later
		r.recheck(key)
	}
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

func replay(inputs []input) map[string]string {
	state := map[string]string{}
	for _, in := range inputs {
		set(state, in.key, in.value)
	}
	return state
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
	return Change[*configMap]{Key: key, Object: object(r.state, r.timed, key), Cause: cause, Timed: r.timed[key]}
}

// recheck renders an object again because time has passed.
func (r *replica) recheck(key string) {
	r.timed[key] = r.world.timed[key]
	r.world.note("recheck tag %d %s", r.cache.Tag, key)
	r.cache.Apply(slices.Min(r.seen), []Change[*configMap]{{Key: key, Object: object(r.state, r.timed, key), Cause: Always}})
}

// bookmark tells how far a stream is.
func (r *replica) bookmark(s int) {
	r.seen[s] = max(r.seen[s], r.upTo(s))
	r.world.note("bookmark tag %d stream %d seen %v", r.cache.Tag, s, r.seen)
	r.cache.Progress(slices.Min(r.seen))
}

// relist loses a stream and lists it anew: what happened in between is not seen.
func (r *replica) relist(s int) {
	inputs := r.world.streams[s]
	ahead := r.at[s] + r.world.rand.IntN(len(inputs)-r.at[s]+1)
	touched := map[string]bool{}
	for _, in := range inputs[r.at[s]:ahead] {
		touched[in.key] = true
	}
	before := maps.Clone(r.state[s])
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
	r.cache.Gap(r.seen[s])
	r.cache.Apply(slices.Min(r.seen), changes)
}

// client keeps a copy by list and watch, as a reflector does, from any replica.
type client struct {
	t         *testing.T
	world     *world
	replicas  []*replica
	namespace string
	matches   func(*configMap) bool
	own       bool // the first stream alone decides what matches
	streaming bool // watch-list

	copy    map[string]string
	version string
	stop    context.CancelFunc
	watch   watch.Interface
	log     []string
}

func (c *client) note(format string, args ...any) {
	c.log = append(c.log, fmt.Sprintf(format, args...))
}

func (c *client) any() (int, *replica) {
	i := c.world.rand.IntN(len(c.replicas))
	return i, c.replicas[i]
}

// connect lists if it must, and watches.
func (c *client) connect() {
	i, r := c.any()
	ctx, stop := context.WithCancel(context.Background())
	c.stop = stop
	options := WatchOptions[*configMap]{Namespace: c.namespace, Matches: c.matches, AllowBookmarks: true}
	if c.own {
		options.MatchesOwn = c.matches
	}
	if c.version == "" && c.streaming {
		yes := true
		options.SendInitialEvents = &yes
		c.copy = map[string]string{}
		c.note("watch-list from %d", i)
	} else {
		if c.version == "" {
			c.list(r, i)
			i, r = c.any()
		}
		options.ResourceVersion = c.version
		c.note("watch from %d at %s", i, c.version)
	}
	var err error
	c.watch, err = r.cache.Watch(ctx, options)
	if err != nil {
		c.t.Fatal(err)
	}
}

// list lists, in pages of which each comes from any replica.
func (c *client) list(r *replica, i int) {
	c.copy = map[string]string{}
	options := ListOptions[*configMap]{Namespace: c.namespace, Matches: c.matches, Limit: int64(c.world.rand.IntN(4))}
	for {
		list, err := r.cache.List(context.Background(), options)
		switch {
		case err != nil && options.Continue != "" && (apierrors.IsResourceExpired(err) || apierrors.IsTimeout(err)):
			c.note("page from %d: %v", i, err)
			options.Continue, c.copy = "", map[string]string{}
			continue
		case err != nil:
			c.t.Fatalf("list: %v", err)
		}
		for _, o := range list.Items {
			c.copy[o.Namespace+"/"+o.Name] = o.value
		}
		c.note("list from %d: %v at %s", i, c.copy, list.ResourceVersion)
		c.version = list.ResourceVersion
		if list.Continue == "" {
			return
		}
		options.Continue = list.Continue
		i, r = c.any()
	}
}

// drain takes what has come.
func (c *client) drain() {
	for c.watch != nil {
		select {
		case e, open := <-c.watch.ResultChan():
			if !open {
				c.disconnect()
				return
			}
			c.take(e)
		default:
			return
		}
	}
}

func (c *client) take(e watch.Event) {
	if e.Type == watch.Error {
		err := apierrors.FromObject(e.Object)
		c.note("error %v", err)
		if !apierrors.IsResourceExpired(err) && !storage.IsTooLargeResourceVersion(err) {
			c.t.Fatalf("watch: %v", err)
		}
		c.disconnect()
		c.version = ""
		return
	}
	o := unwrapped(e.Object)
	c.note("%s %s/%s=%s at %s", e.Type, o.Namespace, o.Name, o.value, o.ResourceVersion)
	if c.streaming && c.version == "" && e.Type == watch.Added {
		c.copy[o.Namespace+"/"+o.Name] = o.value // initial events are in no order
		return
	}
	if before(o.ResourceVersion, c.version) {
		c.t.Errorf("version %s after %s", o.ResourceVersion, c.version)
	}
	switch key := o.Namespace + "/" + o.Name; e.Type {
	case watch.Added, watch.Modified:
		c.copy[key] = o.value
	case watch.Deleted:
		delete(c.copy, key)
	}
	if !c.streaming || c.version != "" || o.Annotations[metav1.InitialEventsAnnotationKey] == "true" {
		c.version = o.ResourceVersion
	}
}

// unwrapped returns the object of an event.
func unwrapped(o runtime.Object) *configMap {
	if shared, ok := o.(runtime.CacheableObject); ok {
		o = shared.GetObject()
	}
	return o.(*configMap)
}

func (c *client) disconnect() {
	if c.watch != nil {
		c.stop()
		c.watch = nil
	}
}

// hop takes what there is and goes on elsewhere, some times.
func (c *client) hop() {
	for range 1 + c.world.rand.IntN(3) {
		c.drain()
		c.disconnect()
		c.connect()
		synctest.Wait()
	}
}

func before(a, b string) bool {
	return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) < 0
}

func (c *client) check() {
	want := map[string]string{}
	for _, key := range keys {
		o := object(c.world.state, c.world.timed, key)
		if o != nil && (c.namespace == "" || o.Namespace == c.namespace) && (c.matches == nil || c.matches(o)) {
			want[key] = o.value
		}
	}
	if diff := gocmp.Diff(want, c.copy); diff != "" {
		c.t.Errorf("a client does not converge (-truth +client):\n%s\n%s", diff, strings.Join(c.log, "\n")+"\n\n"+strings.Join(c.world.log, "\n"))
	}
}

func runHistory(t *testing.T, seed uint64, several bool) {
	t.Helper()
	w := &world{rand: rand.New(rand.NewPCG(seed, 0)), several: several, streams: make([][]input, streams), state: make([]map[string]string, streams), timed: map[string]bool{}}
	for s := range w.state {
		w.state[s] = map[string]string{}
		w.revision[s] = 100
		if several {
			w.revision[s] += w.rand.Uint64N(60)
		}
	}
	for range 5 {
		w.write()
	}
	rs := make([]*replica, replicas)
	for i := range rs {
		rs[i] = w.newReplica()
	}
	cs := make([]*client, clients)
	for i := range cs {
		cs[i] = &client{t: t, world: w, replicas: rs, streaming: i%2 == 1}
		if w.rand.IntN(2) == 0 {
			cs[i].namespace = "a"
		}
		switch w.rand.IntN(4) {
		case 0, 1:
			cs[i].matches = func(o *configMap) bool { return strings.Contains(o.value, "1") }
		case 2:
			cs[i].matches, cs[i].own = func(o *configMap) bool { return strings.HasPrefix(o.value, "1") }, true
		}
	}
	for range 30 + w.rand.IntN(60) {
		r, c := rs[w.rand.IntN(replicas)], cs[w.rand.IntN(clients)]
		if several && w.rand.IntN(25) == 0 {
			w.note("tag %d notices", r.cache.Tag)
			r.cache.SetLocal()
		}
		switch w.rand.IntN(22) {
		case 0:
			r.start()
		case 1:
			r.relist(w.rand.IntN(streams))
		case 2, 3:
			r.bookmark(w.rand.IntN(streams))
		case 4, 5, 6:
			c.disconnect()
		case 7:
			pass(time.Duration(w.rand.IntN(90)) * time.Second)
		case 8, 9, 10, 11:
			w.write()
		case 12, 13:
			if c.watch == nil {
				c.connect()
			}
		case 14:
			key := keys[w.rand.IntN(len(keys))]
			if w.rand.IntN(2) == 0 {
				w.timed[key] = true
			}
			r.recheck(key)
		case 15:
			c.hop()
		default:
			r.apply(w.rand.IntN(streams))
		}
		synctest.Wait()
		if w.rand.IntN(2) == 0 {
			c.drain()
		}
	}
	// Everything arrives in the end, and every client is connected.
	for _, r := range rs {
		for s := range streams {
			for r.at[s] < len(w.streams[s]) {
				r.apply(s)
			}
			r.bookmark(s)
		}
		for _, key := range keys {
			if r.timed[key] != w.timed[key] {
				r.recheck(key)
			}
		}
	}
	for _, c := range cs {
		for range 60 { // until the list and the watch come from a replica that can go on from there
			if c.watch == nil {
				c.connect()
			}
			synctest.Wait()
			c.drain()
		}
		synctest.Wait()
		c.check()
		c.disconnect()
	}
	synctest.Wait()
}

func newTestCache(tag uint16) *Cache[*configMap] {
	return New(Config[*configMap]{
		New:      func() *configMap { return &configMap{} },
		Copy:     func(o *configMap) *configMap { c := *o; return &c },
		Key:      func(o *configMap) string { return o.Namespace + "/" + o.Name },
		NotReady: func() *apierrors.StatusError { return apierrors.NewServiceUnavailable("not synced yet") },
		Clock:    clock.RealClock{},
		Tag:      tag,
	})
}
