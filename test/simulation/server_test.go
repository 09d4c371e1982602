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

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/controller"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/ingest"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/notify"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/registry/configdependency"
)

// server is a replica: an index that follows the world, and a controller that leads or stands by.
type server struct {
	id      int
	world   *world
	network *network
	alive   bool

	kinds      kind.Table
	index      *ingest.Index
	replay     *ingest.Replay
	digester   *dependency.Digester
	key        int // of the digester
	regressed  int // how often it found that revisions had decreased
	controller *controller.Controller
	streams    [streamCount]stream
	view       view
	gate       gate

	leads bool // otherwise it stands by
	// Since it leads or stands by: the last confirmed write of each workload, and when it could first see that its
	// pods run with other content.
	written    map[int]confirmed
	staleSince map[int]time.Time
	stop       context.CancelFunc
	ended      chan struct{}
	stopped    atomic.Bool // the context of the controller is canceled
	// restarted is when it last restarted each workload automatically since the process started.
	restarted map[int]restarted
	// looked is what it had seen when it last began to verify the pods of each workload.
	looked map[int]view
	// listed are the pods that it listed last, of each workload.
	listed []*listing

	// asleep: its workers do not run. deaf: its requests do not reach the API server. mute: answers do not reach it.
	asleep, deaf, mute bool
}

// confirmed is a write that a server knows to be successful.
type confirmed struct {
	version uint64
	at      time.Time
}

// stream is a watch of one resource.
type stream struct {
	listed uint64 // the revision of the last list; 0: none
	relist bool   // the watch has ended
	held   bool   // no event arrives
	queue  []event
	ended  bool // the watch has ended, because the definition or the right to read it has changed
}

// keyOf returns one of the keys of the hash.
func keyOf(n int) []byte {
	sum := sha256.Sum256(fmt.Append(nil, "key ", n))
	return sum[:]
}

func digesterOf(key int) *dependency.Digester { return dependency.NewDigester(keyOf(key)) }

// defaults are the defaults of every server.
func (w *world) policyDefaults() policy.Defaults {
	d := &w.defaults
	return policy.Defaults{
		Mode: policy.Mode(d.Mode), Settle: time.Second,
		AutoReloadAll: d.AutoReloadAll, ReloadOnCreate: d.ReloadOnChange, ReloadOnDelete: d.ReloadOnChange,
	}
}

// birth starts the process of a server. It has read nothing yet.
func (s *server) birth() {
	s.alive = true
	clock := skewedClock{skew: s.world.skews.Servers[s.id]}
	s.kinds = s.world.kinds()
	s.controller = controller.New(controller.Config{
		Client:  s.client(nil),
		Sink:    notify.Sinks{},
		Clock:   clock,
		Workers: len(s.world.workloads) + 1, // so that the order of the queue does not matter
	})
	s.index = ingest.NewIndex(clock, s.controller)
	s.index.Within(ingest.Scope{Kinds: s.kinds, Agents: s.world.hasAgents()})
	s.index.SetDefaults(s.world.policyDefaults())
	s.regressed = 0
	s.restarted, s.looked, s.listed = map[int]restarted{}, map[int]view{}, make([]*listing, len(s.world.workloads))
	s.read()
	for i := range s.streams {
		s.streams[i] = stream{}
	}
}

// read starts to read the world with the current key. Resources without a stream have no objects.
func (s *server) read() {
	s.digester, s.key = digesterOf(s.world.key), s.world.key
	s.view = view{begun: s.world.revision, key: s.key}
	s.replay = ingest.NewReplay(s.index, s.digester)
	s.replay.Encoded = true
	for _, resource := range unused {
		s.must(s.replay.ListOf(resource, fmt.Sprint(s.world.shown(deployments, s.world.revision))))
	}
}

var unused = []string{"cronjobs", "jobs", "replicasets", "pods"}

func (s *server) must(err error) {
	if err != nil {
		panic(err)
	}
}

// again reads everything again.
func (s *server) again() {
	s.read()
	for i := range s.streams {
		s.streams[i] = stream{held: s.streams[i].held}
	}
}

// rekey reads everything with another key, as package ingest does when the key was replaced. What the server has
// witnessed remains known.
func (s *server) rekey() {
	before := s.view
	s.index.Rekey()
	s.again()
	if !before.synced {
		return
	}
	s.view = before
	if !before.rekeying {
		s.view.kept, s.view.strange = map[int]string{}, map[int]bool{}
		for slot, hash := range before.records {
			if ofKey(hash, before.key) || hash == before.kept[slot] {
				s.view.kept[slot] = hash // otherwise it could not be compared before either
			}
			s.view.strange[slot] = !s.world.oracle.says(slot, hash, &before)
		}
	}
	s.view.key, s.view.rekeying = s.key, true
}

// restored ends the watches of a server after etcd was restored. What it has witnessed before belongs to another
// history, for the oracle too: it may start again.
func (s *server) restored() {
	s.written = map[int]confirmed{}
	if !s.alive {
		return
	}
	for i := range s.streams {
		s.streams[i].relist, s.streams[i].queue = true, nil
	}
}

// run runs the controller until halt, as a leader or standing by.
func (s *server) run(leads bool) {
	ctx, cancel := context.WithCancel(quiet)
	s.stop, s.ended, s.leads = cancel, make(chan struct{}), leads
	s.written, s.staleSince = map[int]confirmed{}, map[int]time.Time{}
	s.stopped.Store(false)
	serve := s.controller.StandBy
	if leads {
		serve = s.controller.Run
	}
	go func() {
		defer close(s.ended)
		serve(ctx, s)
	}()
}

// quiet is a context with a logger that discards everything.
var quiet = klog.NewContext(context.Background(), logr.Discard())

// Read implements policy.Index.
func (s *server) Read(f func(policy.Evaluator)) bool {
	s.gate.wait()
	return s.index.Read(f)
}

// verdict is what a server shows of a workload.
type verdict struct {
	state, reason, message, action string
	shown                          *v1alpha1.ConfigDependency // nil: the server does not know the workload
	timed, provisional             bool                       // see policy.Decision
}

// decide returns the state of a workload as a server's API would show it.
func (s *server) decide(d *workload) (v verdict) {
	s.index.Read(func(known policy.Evaluator) {
		if w := known.Graph.Workload(d.key()); w != nil {
			e := known.Evaluate(w)
			decision := e.Decide(policy.Observed{Now: s.controller.Clock.Now(), StandsBy: !s.leads && s.world.led(), Inspected: s.controller.Found(w.WorkloadKey)})
			v = verdict{string(decision.State), decision.Reason, decision.Message, string(decision.Action), configdependency.Render(s.kinds, e, decision), decision.Timed, decision.Provisional}
		}
	})
	return v
}

// led reports whether a server leads.
func (w *world) led() bool {
	return slices.ContainsFunc(w.servers, func(s *server) bool { return s.leads })
}

func (d *workload) key() dependency.WorkloadKey {
	return dependency.WorkloadKey{Kind: dependency.WorkloadKind(d.kind), Namespace: namespace, Name: workloadName(d.slot)}
}

// knows reports whether the server knows a workload.
func (s *server) knows(kind string, slot int) (is bool) {
	d := workload{manifest: manifest{kind: kind, slot: slot}}
	s.index.Read(func(known policy.Evaluator) { is = known.Graph.Workload(d.key()) != nil })
	return is
}

// deliver passes one event or one list of a stream to the index, and reports whether there was one.
func (s *server) deliver(id streamID) bool {
	st := &s.streams[id]
	switch {
	case st.held:
		return false
	case s.leaves(id):
		s.leave(id)
	case s.joins(id), st.listed == 0, st.relist && !s.view.absent[id]:
		s.list(id)
	case len(st.queue) > 0:
		e := st.queue[0]
		st.queue = st.queue[1:]
		s.look(&e, false)
		if e.revision < s.view.latest {
			s.view.disordered = s.view.latest
		}
		s.view.latest = max(s.view.latest, e.revision)
		if e.deleted {
			s.must(s.replay.Delete(s.sent(&e)))
		} else {
			s.must(s.replay.Set(s.sent(&e)))
		}
	default:
		return false
	}
	s.noticeRestore()
	return true
}

// noticeRestore makes the server read everything again if it has found that etcd was restored.
func (s *server) noticeRestore() {
	if n := s.index.Progress().Restored; n != s.regressed {
		s.regressed = n
		if s.world.restored == 0 {
			s.world.oracle.fail("server %d takes etcd for restored, which it has not been", s.id)
		}
		s.world.logf("  server %d starts again", s.id)
		s.index.Reset()
		s.again()
	}
}

func (s *server) list(id streamID) {
	st := &s.streams[id]
	again := st.listed != 0
	s.join(id)
	st.queue, st.relist, st.listed = nil, false, s.world.revision
	s.view.listed[id], s.view.latest = s.world.revision, s.world.revision
	events := s.world.list(id)
	var objects []runtime.Object
	seen := map[int]bool{}
	for i := range events {
		s.look(&events[i], true)
		seen[events[i].slot] = true
		objects = append(objects, s.sent(&events[i]))
	}
	if id == configMaps || id == secrets {
		for slot := range s.view.sources {
			if sourceStream(slot) == id && !seen[slot] && s.view.sources[slot].present {
				s.look(&event{slot: slot, source: &source{changed: s.world.revision, keys: s.world.sources[slot].keys}}, true)
			}
		}
	}
	version := s.world.shown(id, s.world.revision)
	if again {
		s.must(s.replay.Probe(quiet, s.world.nameOf(id), version)) // a watch has ended, before which the version is probed
	}
	s.must(s.replay.ListOf(s.world.nameOf(id), fmt.Sprint(version), objects...))
	s.sync()
}

// sync notes that the last of the first lists has been read.
func (s *server) sync() {
	if s.view.synced && !s.view.rekeying {
		return
	}
	for _, i := range s.world.streams() {
		if s.streams[i].listed == 0 {
			return
		}
	}
	if !s.view.synced {
		s.view.since = slices.Max(s.view.listed[:])
	}
	s.view.synced, s.view.rekeying = true, false
	s.world.logf("    server %d has read everything", s.id)
	synctest.Wait() // workers have handled all workloads, which are queued again below
	for _, resource := range unused {
		s.must(s.replay.Probe(quiet, resource, s.world.shown(deployments, s.world.revision)))
	}
	for _, id := range s.world.streams() {
		if !s.view.absent[id] {
			s.must(s.replay.Probe(quiet, s.world.nameOf(id), s.world.shown(id, s.world.revision)))
		}
	}
}

// bookmark sends a bookmark of each resource whose events have all reached the server.
func (s *server) bookmark() {
	if !s.alive || !s.view.synced || s.view.rekeying {
		return
	}
	defer s.noticeRestore()
	for _, resource := range unused {
		s.must(s.replay.Bookmark(resource, fmt.Sprint(s.world.shown(deployments, s.world.revision))))
	}
	for _, id := range s.world.streams() {
		if st := &s.streams[id]; !st.held && !st.relist && !st.ended && !s.view.absent[id] && len(st.queue) == 0 {
			s.must(s.replay.Bookmark(s.world.nameOf(id), fmt.Sprint(s.world.shown(id, s.world.revision))))
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
