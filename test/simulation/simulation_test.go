// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"testing/synctest"
	"time"

	records "github.com/configdep/configdep/pkg/record"
)

// simulation drives a world and its servers, in a bubble of testing/synctest.
type simulation struct {
	world   *world
	network *network
	faults  map[int][]fault // the faults of the next requests, by slot
	batches bool            // whether events come in batches, and not one by one
	answers int             // since time last advanced
}

// network contains requests that were sent and not answered.
type network struct {
	mu       sync.Mutex
	requests []*request
	arrived  chan struct{}
	count    int
}

func (n *network) add(r *request) {
	n.mu.Lock()
	n.requests = append(n.requests, r)
	n.count++
	n.mu.Unlock()
	select {
	case n.arrived <- struct{}{}:
	default:
	}
}

// waits reports whether a server waits for the answer to a request about a workload.
func (n *network) waits(s *server, slot int) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.ContainsFunc(n.requests, func(r *request) bool { return r.server == s && r.slot == slot && !r.ghost })
}

// firstRevision is the revision at which a history starts.
const firstRevision = 100

// newSimulation returns a simulation of a history that has not started.
func newSimulation(h *history, trace *[]string) *simulation {
	w := &world{revision: firstRevision, skews: h.Skews, pace: h.Pace, kubelets: h.Kubelets, defaults: h.defaults, waves: h.Waves,
		seeds: h.Workloads, workloads: make([]*workload, len(h.Workloads)), trace: trace}
	w.oracle = newOracle(w)
	s := &simulation{world: w, network: &network{arrived: make(chan struct{}, 1)}, faults: map[int][]fault{}, batches: h.Batches}
	for id := range h.Servers {
		w.servers = append(w.servers, &server{id: id, world: w, network: s.network})
	}
	return s
}

// drain continues until nothing more happens by itself at this time.
func (s *simulation) drain() {
	for s.world.oracle.violation == "" {
		synctest.Wait()
		s.note()
		if s.deliver() {
			continue
		}
		if !s.answer() {
			return
		}
		if s.answers++; s.answers > patience {
			s.fight()
		}
	}
}

// patience is the number of answers without an advance of time after which leaders are assumed to fight. Two workloads that are restarted
// in place take more than 50.
const patience = 80

// fight ends a fight between two leaders that see different states and revert each other's writes: the lease of
// one expires.
func (s *simulation) fight() {
	s.answers = 0
	if a, b := s.world.servers[0], s.world.servers[len(s.world.servers)-1]; a != b && a.leads && b.leads {
		s.world.logf("    two leaders fight")
		s.world.oracle.tally["fights of two leaders"]++
		s.resign(a, false)
		return
	}
	s.world.oracle.fail("%d requests without an advance of time", patience)
}

// note records requests that were just sent.
func (s *simulation) note() {
	s.network.mu.Lock()
	defer s.network.mu.Unlock()
	for _, r := range sorted(s.network.requests) {
		if !r.noted {
			r.noted, r.terminating, r.lagged = true, r.server.view.terminating, r.server.lags(pods)
			r.orphaned = r.server.lags(replicaSets)
			r.behind, r.sources = r.server.lags(configMaps) || r.server.lags(secrets), r.server.view.sources
			s.world.logf("%v", r)
			s.world.oracle.checkWave(r)
			if r.patch() != nil && r.reload == nil {
				s.world.oracle.patches++
				if m := r.server.view.workloads[r.slot]; m != nil {
					rules := r.server.rules(m)
					r.managed = rules.managed()
					if got := r.server.show(m); got != nil {
						r.kept, r.hidden = got.kept, got.hidden()
					}
				}
			}
		}
	}
}

// deliver delivers pending events to the servers, while their workers are held. It reports whether the workers
// have anything to do then.
func (s *simulation) deliver() (delivered bool) {
	for _, server := range s.world.servers {
		if !server.alive {
			continue
		}
		server.gate.close()
		if server.key != s.world.key && !server.streams[secrets].held {
			s.world.logf("    server %d reads another key", server.id)
			for _, d := range s.world.workloads {
				if d != nil {
					d.refusals = refusals{} // it forgets them with all that it has read
				}
			}
			server.again()
			delivered = true
		}
		for once := true; once || s.batches; once = false {
			if id, found := server.next(); !found {
				break
			} else if server.deliver(id) {
				delivered = true
			}
			synctest.Wait() // a worker has handled the events so far, and is notified again of later ones
		}
		s.world.oracle.arrived(server)
		if !server.asleep && server.gate.open() {
			delivered = true // held requests are sent before anything else happens
		}
	}
	return delivered
}

// next returns the stream with the earliest event, of those that are not held.
func (s *server) next() (first streamID, found bool) {
	var at uint64
	for id := range streamCount {
		st := &s.streams[id]
		switch {
		case st.held, !s.reads(id):
		case !st.listed, st.relist:
			return id, true
		case len(st.queue) > 0 && (!found || st.queue[0].revision < at):
			first, found, at = id, true, st.queue[0].revision
		}
	}
	return first, found
}

// answer carries out one request, or sends one answer.
func (s *simulation) answer() bool {
	s.network.mu.Lock()
	defer s.network.mu.Unlock()
	for i, r := range s.network.requests {
		if r.done == nil {
			if r.server.deaf && !r.ghost && r.reload == nil {
				r.late = true
				continue
			}
			f := noFault
			if waiting := s.faults[r.slot]; len(waiting) > 0 && r.reload == nil {
				f, s.faults[r.slot] = waiting[0], waiting[1:]
				s.world.logf("    fault: %s", faultNames[f])
				if d := s.world.workloads[r.slot]; d != nil {
					d.refusals = refusals{} // it may be shown as due until the next answer
				}
			}
			a := s.world.do(r, f)
			r.done = &a
			r.server.wrote(r, &a)
			return true
		}
		if r.server.mute && !r.ghost && r.reload == nil {
			continue
		}
		s.network.requests = append(s.network.requests[:i:i], s.network.requests[i+1:]...)
		if !r.ghost {
			r.reply <- *r.done
		}
		return true
	}
	return false
}

// sleep advances the time.
func (s *simulation) sleep(d time.Duration) {
	end := time.Now().Add(d)
	for s.world.oracle.violation == "" {
		s.drain()
		if s.world.advance() {
			continue
		}
		s.answers = 0
		for _, server := range s.world.servers {
			server.bookmark()
		}
		left := time.Until(end)
		if left <= 0 {
			return
		}
		if due := s.world.due(); !due.IsZero() {
			left = min(left, time.Until(due))
		}
		timer := time.NewTimer(left)
		select {
		case <-timer.C:
		case <-s.network.arrived:
		}
		timer.Stop()
	}
}

// lead makes a server the leader.
func (s *simulation) lead(server *server) bool {
	if !server.alive || server.leads {
		return false
	}
	server.lead()
	return true
}

// resign ends the leadership of a server. Its requests may still be carried out when no client waits for the
// answers.
func (s *simulation) resign(server *server, ghosts bool) bool {
	if !server.leads {
		return false
	}
	s.halt(server, ghosts)
	return true
}

// halt stops the controller of a server; see resign.
func (s *simulation) halt(server *server, ghosts bool) {
	if !server.leads {
		return
	}
	server.stopped.Store(true)
	server.stop()
	s.network.mu.Lock()
	var left []*request
	for _, r := range s.network.requests {
		if r.server == server && !r.ghost && r.reload == nil {
			r.reply <- answer{err: context.Canceled}
			r.ghost = true
			if !ghosts {
				continue
			}
		}
		left = append(left, r)
	}
	s.network.requests = left
	s.network.mu.Unlock()
	server.gate.open()
	<-server.ended
	server.leads = false
}

// kill ends the process of a server.
func (s *simulation) kill(server *server, ghosts bool) bool {
	if !server.alive {
		return false
	}
	s.halt(server, ghosts)
	server.alive = false
	server.index, server.replay, server.controller = nil, nil, nil
	return true
}

func (s *simulation) birth(server *server) bool {
	if server.alive {
		return false
	}
	server.birth()
	return true
}

// calm ends all faults and holds, and advances the time until nothing happens. One server leads then.
func (s *simulation) calm() {
	clear(s.faults)
	for _, server := range s.world.servers {
		server.asleep, server.deaf, server.mute = false, false, false
		for i := range server.streams {
			server.streams[i].held = false
		}
	}
	s.drain() // a new leader knows what was held
	leading := 0
	for _, server := range s.world.servers {
		if server.leads {
			if leading++; leading > 1 {
				s.resign(server, true)
			}
		}
	}
	if leading == 0 {
		s.birth(s.world.servers[0])
		s.lead(s.world.servers[0])
	}
	for _, d := range s.world.workloads {
		if d != nil {
			d.refused, d.restarter = false, restarting{stuck: d.restarter.stuck}
		}
	}
	s.sleep(calmFor + windowPeriod) // until windows have opened
	if slices.ContainsFunc(s.world.workloads, (*workload).waitsLong) {
		s.sleep(time.Hour)
	}
	s.calmWaves()
}

// calmFor is more than the longest back-off, but for that of restarts in close succession.
const calmFor = 15 * time.Minute

// waitsLong reports whether a minimum interval of a minute has grown to more than calmFor. It is an hour at most.
func (d *workload) waitsLong() bool {
	var last struct{ Streak int }
	return d != nil && json.Unmarshal([]byte(d.annotations[lastReloadAnnotation]), &last) == nil && records.Interval(time.Minute, last.Streak) > calmFor
}

// end stops everything.
func (s *simulation) end() {
	s.network.mu.Lock()
	for _, r := range s.network.requests {
		if r.reload != nil {
			r.reply <- answer{err: context.Canceled}
		}
	}
	s.network.mu.Unlock()
	for _, server := range s.world.servers {
		s.kill(server, false)
	}
}

// mostInAnHour is how many patches a server may send for a workload in an hour without other events, because its
// owner fights: each write of a server is removed. The server may list pods and ReplicaSets before each.
const mostInAnHour = 40

// lastHour advances the time by an hour in which servers have nothing to do, unless an owner fights, or an
// eviction must wait.
func (s *simulation) lastHour() {
	allowed := 0
	for _, d := range s.world.workloads {
		switch {
		case d == nil:
		case d.annotations[recreatingAnnotation] != "", s.world.oracle.recorded[d.uid].recreating != "":
			return // pods are listed again and again
		case d.holder.fights():
			allowed += mostInAnHour
		case customKinds[d.kind] != nil: // its controller is told again, as long as it has not replaced a pod
			allowed += 7
		case slices.ContainsFunc(d.pods, func(p *pod) bool { return s.world.skews.wrong(p.node()) }): // a time comes by which it had started already
			allowed++
		}
	}
	o := s.world.oracle
	requests, patches := s.network.count, o.patches
	s.sleep(time.Hour)
	requests, patches = s.network.count-requests, o.patches-patches
	if o.violation == "" && (patches > allowed || requests > 5*allowed) {
		o.fail("%d requests in an hour without other events, of which %d were patches", requests, patches)
	}
}
