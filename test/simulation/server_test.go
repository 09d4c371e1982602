// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/configdep/configdep/pkg/apis/policy/v1alpha1"
	"github.com/configdep/configdep/pkg/controller"
	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/ingest"
	"github.com/configdep/configdep/pkg/notify"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/wave"
	workloads "github.com/configdep/configdep/pkg/workload"
	"github.com/configdep/configdep/pkg/workload/workloadtest"
)

// server is a replica: an index that follows the world, and a controller that runs while it leads.
type server struct {
	id      int
	world   *world
	network *network
	alive   bool

	index      *ingest.Index
	replay     *ingest.Replay
	digester   *dependency.Digester
	key        int // of the digester
	controller *controller.Controller
	planner    *wave.Planner // nil: restarts wait for no others
	streams    [streamCount]stream
	known      known
	view       view
	gate       gate

	leads bool
	// why are the workloads for whose restart there has been a reason, at any time since they were last seen to run with the current content.
	why     map[int]reason
	stop    context.CancelFunc
	ended   chan struct{}
	stopped atomic.Bool // the context of the controller is canceled

	// asleep: its workers do not run. deaf: its requests do not reach the API server. mute: answers do not reach it.
	asleep, deaf, mute bool
}

// stream is a watch of one resource.
type stream struct {
	listed bool
	again  time.Time // when it was listed again; zero: it was not
	relist bool      // the watch has ended
	held   bool      // no event arrives
	queue  []event
	heard  time.Time // when anything of it last arrived
	before time.Time // and when before that instant
}

// view is what a server has read. The index has to draw its conclusions from the same.
type view struct {
	synced      bool
	began       time.Time         // when it was synced
	complete    time.Time         // when it had read the statuses of classes, too
	annotations map[string]string // of the namespace
	terminating bool              // the namespace
	sources     [sourceCount]source
	// read are the states of sources, by the revision since which they had them, and whether an event told them.
	read      [sourceCount + 1]map[uint64]bool
	readAt    [sourceCount + 1]map[uint64]time.Time
	heard     [sourceCount + 1]map[uint64]time.Time // when the server had last heard of the resource before
	first     [sourceCount + 1]source               // as they were when the server had read everything
	changed   [sourceCount + 1]time.Time            // when the server last saw their content change
	unnamed   [sourceCount + 1]bool                 // they were deleted while no template named them
	workloads map[int]*manifest
	pods      map[string]*pod
	mounts    map[string]*mount // by the names of their pods
	policies  [policyCount]*v1alpha1.ReloadPolicy
}

// keyOf returns one of the keys of the hash.
func keyOf(n int) []byte {
	sum := sha256.Sum256(fmt.Append(nil, "key ", n))
	return sum[:]
}

// birth starts the process of a server. It has read nothing yet.
func (s *server) birth() {
	s.alive = true
	clock := skewedClock{skew: s.world.skews.Servers[s.id]}
	s.plan(clock)
	s.controller = controller.New(controller.Config{
		Planner: s.planner,
		Client:  s.client(nil),
		Sink:    notify.Sinks{},
		Clock:   clock,
		Workers: len(s.world.workloads) + 1, // so that the order of the queue does not matter
	})
	s.index = ingest.NewIndex(clock, s.controller)
	s.index.Within(ingest.Scope{Kinds: kinds, PodStatuses: true, Policies: s.planner != nil})
	s.index.SetDefaults(policy.Defaults{Mode: policy.Mode(s.world.defaults.Mode), Settle: time.Second, ReleaseSettle: s.world.defaults.ReleaseSettle})
	s.streams = [streamCount]stream{}
	s.read()
}

func (s *server) client(request *reloadRequest) workloads.Client {
	c := workloadtest.Client(client{server: s, reload: request})
	c.Kinds, c.Objects = kinds, objects{c.Objects, s, request}
	return c
}

// read starts to read the world with the current key.
func (s *server) read() {
	s.digester, s.key = dependency.NewDigester(keyOf(s.world.key)), s.world.key
	s.view = view{workloads: map[int]*manifest{}, pods: map[string]*pod{}, mounts: map[string]*mount{}}
	for slot := range s.view.read {
		s.view.heard[slot] = map[uint64]time.Time{}
		s.view.read[slot], s.view.readAt[slot] = map[uint64]bool{0: false}, map[uint64]time.Time{} // 0: that it has never been there
	}
	s.why = map[int]reason{}
	s.replay = ingest.NewReplay(s.index, s.digester)
	s.must(s.replay.ListOf(unused, fmt.Sprint(s.world.revision)))
}

// unused is a stream without objects: ReplicaSets without a Deployment.
const unused = "replicasets"

func (s *server) must(err error) {
	if err != nil {
		panic(err)
	}
}

// again reads everything again, as after the key was replaced.
func (s *server) again() {
	s.index.Reset()
	s.read()
	for i := range s.streams {
		s.streams[i] = stream{held: s.streams[i].held}
	}
}

// lead runs the controller until halt.
func (s *server) lead() {
	ctx, cancel := context.WithCancel(quiet)
	s.stop, s.ended, s.leads = cancel, make(chan struct{}), true
	s.known = known{led: time.Now(), flying: map[int]flight{}}
	s.stopped.Store(false)
	go func() {
		defer close(s.ended)
		s.controller.Run(ctx, s)
	}()
}

// quiet is a context with a logger that discards everything.
var quiet = klog.NewContext(context.Background(), logr.Discard())

// Read implements decide.Index.
func (s *server) Read(f func(decide.Evaluator)) bool {
	s.gate.wait()
	return s.index.Read(f)
}

// leaders returns how many servers lead.
func (w *world) leaders() (n int) {
	for _, s := range w.servers {
		if s.leads {
			n++
		}
	}
	return n
}

func (d *manifest) key() dependency.WorkloadKey {
	return dependency.WorkloadKey{Kind: dependency.WorkloadKind(d.kind), Namespace: namespace, Name: workloadName(d.slot)}
}

// deliver passes one event or one list of a stream to the index, and reports whether there was one.
func (s *server) deliver(id streamID) bool {
	st := &s.streams[id]
	switch {
	case st.held, !s.reads(id):
		return false
	case !st.listed, st.relist:
		s.list(id)
	case len(st.queue) > 0:
		e := st.queue[0]
		st.queue = st.queue[1:]
		s.look(&e, false)
		if e.deleted {
			s.must(s.replay.Delete(e.object()))
		} else {
			s.must(s.replay.Set(e.object()))
		}
	default:
		return false
	}
	st.hear()
	if s.index.Progress().Restored != 0 {
		s.world.oracle.fail("server %d takes etcd for restored, which it has not been", s.id)
	}
	return true
}

func (s *server) list(id streamID) {
	st := &s.streams[id]
	again := st.listed
	if st.queue, st.relist, st.listed = nil, false, true; again {
		st.again = time.Now()
	}
	events := s.world.list(id)
	var objects []runtime.Object
	found := map[int]bool{}
	if id == pods {
		clear(s.view.pods)
	}
	if id == podStatuses {
		clear(s.view.mounts)
		if !again {
			s.view.complete = time.Now()
		}
	}
	if id == policies {
		s.view.policies = [policyCount]*v1alpha1.ReloadPolicy{}
	}
	for i := range events {
		s.look(&events[i], true)
		found[events[i].slot] = true
		objects = append(objects, events[i].object())
	}
	for slot := range s.view.sources {
		if sourceStream(slot) == id && !found[slot] {
			s.look(&event{slot: slot, source: &s.world.sources[slot]}, true)
		}
	}
	for slot, m := range s.view.workloads {
		if workloadStreams[m.kind] == id && !found[slot] {
			delete(s.view.workloads, slot)
		}
	}
	s.view.borrow()
	if again {
		s.must(s.replay.Probe(quiet, streamNames[id], s.world.revision)) // a watch has ended, before which the version is probed
	}
	s.must(s.replay.ListOf(streamNames[id], fmt.Sprint(s.world.revision), objects...))
	s.sync()
}

// sync notes that the last of the first lists has been read. None waits for statuses, whose resource is optional.
func (s *server) sync() {
	if s.view.synced {
		return
	}
	for id := range streamCount {
		if id != podStatuses && s.reads(id) && !s.streams[id].listed {
			return
		}
	}
	s.view.synced, s.view.began = true, time.Now()
	s.world.logf("    server %d has read everything", s.id)
	synctest.Wait() // workers have handled all workloads, which are queued again below
	for _, name := range append([]string{unused}, streamNames[:]...) {
		if name == ingest.Policies && s.planner == nil {
			continue
		}
		s.must(s.replay.Probe(quiet, name, s.world.revision))
	}
}

// look records what reaches the server.
func (s *server) look(e *event, byList bool) {
	v := &s.view
	switch {
	case e.workload != nil && e.deleted:
		delete(v.workloads, e.slot)
		v.borrow()
	case e.workload != nil:
		v.workloads[e.slot] = e.workload
		v.borrow()
	case e.pod != nil && e.deleted:
		delete(v.pods, e.pod.name)
	case e.pod != nil:
		v.pods[e.pod.name] = e.pod
	case e.mount != nil && e.deleted:
		delete(v.mounts, e.mount.pod)
	case e.mount != nil:
		v.look(e.mount)
	case e.stream == policies:
		v.policies[e.slot] = nil
		if !e.deleted {
			v.policies[e.slot] = e.other.(*v1alpha1.ReloadPolicy)
		}
	case e.namespace != nil:
		v.annotations, v.terminating = e.namespace.Annotations, e.namespace.DeletionTimestamp != nil
	case e.source != nil:
		remembers := v.synced && !v.complete.IsZero()
		if !remembers { // changes are remembered only from then on
			clear(v.read[e.slot])
			v.first[e.slot] = *e.source
		}
		if v.sources[e.slot].changed != e.source.changed || !remembers {
			v.readAt[e.slot][e.source.changed], v.heard[e.slot][e.source.changed] = time.Now(), s.streams[sourceStream(e.slot)].heardBefore()
			if remembers {
				v.changed[e.slot] = time.Now()
			}
			v.read[e.slot][e.source.changed] = v.read[e.slot][e.source.changed] || !byList
		}
		if v.sources[e.slot].present && !e.source.present && !v.uses(e.slot) {
			v.unnamed[e.slot] = true
		}
		v.sources[e.slot] = *e.source
	}
}

// uses reports whether a template uses a source.
func (v *view) uses(source int) bool {
	for _, m := range v.workloads {
		if !m.bare && slices.ContainsFunc(usesOf(m.template.variant), func(u use) bool { return u.source == source }) {
			return true
		}
	}
	return false
}

// hear notes that something of the stream has arrived.
func (st *stream) hear() {
	if now := time.Now(); now.After(st.heard) {
		st.before, st.heard = st.heard, now
	}
}

// heardBefore returns when anything of the stream last arrived before now: events that were held arrive together.
func (st *stream) heardBefore() time.Time {
	if st.heard.Equal(time.Now()) {
		return st.before
	}
	return st.heard
}

// lags reports whether anything of a stream has yet to reach the server.
func (s *server) lags(id streamID) bool {
	st := &s.streams[id]
	return len(st.queue) > 0 || st.relist || !st.listed
}

// bookmark sends a bookmark of each resource whose events have all reached the server.
func (s *server) bookmark() {
	if !s.alive || !s.view.synced {
		return
	}
	s.must(s.replay.Bookmark(unused, fmt.Sprint(s.world.revision)))
	for id := range streamCount {
		if s.reads(id) && !s.streams[id].held && !s.lags(id) {
			s.must(s.replay.Bookmark(streamNames[id], fmt.Sprint(s.world.revision)))
			s.streams[id].hear()
		}
	}
}

// gate holds the workers of a server, so that it is known what they have seen when they decide.
type gate struct {
	mu      sync.Mutex
	closed  chan struct{} // nil: open
	waiting bool          // a worker was held since it was closed
}

func (g *gate) wait() {
	g.mu.Lock()
	closed := g.closed
	g.waiting = closed != nil
	g.mu.Unlock()
	if closed != nil {
		<-closed
	}
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed == nil {
		g.closed = make(chan struct{})
	}
}

// open releases the workers, and reports whether any was held.
func (g *gate) open() (held bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed != nil {
		close(g.closed)
		held, g.closed, g.waiting = g.waiting, nil, false
	}
	return held
}

// skewedClock is the clock of the bubble with a constant error, and without the tickers of work queues, which are
// only for metrics and a safety net, and would be most of the events of an hour.
type skewedClock struct {
	clock.RealClock
	skew time.Duration
}

func (c skewedClock) Now() time.Time                  { return time.Now().Add(c.skew) }
func (c skewedClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

func (skewedClock) NewTicker(time.Duration) clock.Ticker { return silent{} }

type silent struct{}

func (silent) C() <-chan time.Time { return nil }
func (silent) Stop()               {}
