// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"slices"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/equality"
)

// checkCalm checks a world in which nothing happens any longer.
func (o *oracle) checkCalm() {
	o.checkPauses()
	o.checkAbsent()
	contents, marks := o.world.contents(), o.world.marks()
	for _, d := range o.world.workloads {
		if d == nil || o.violation != "" || !o.world.readable(workloadStream(d.kind)) {
			continue
		}
		t := &d.truth
		blocked := missing(d.template.variant, marks, contents)
		stale := d.isStale(&t.scopes, &contents)
		want := o.expect(d, blocked, stale)
		told := false // whether the leader shows that the pods may not run with the current content
		for _, server := range o.world.servers {
			if !server.alive {
				continue
			}
			got := server.decide(d)
			if server.leads {
				told = got.state != "InSync"
				o.checkHalted(d, server, got)
			}
			o.checkUnderWay(d, server, got)
			o.checkAgents(d, server, got)
			// The server's knowledge about its own record, which is not checked here, may hold a paused
			// Deployment.
			held := d.paused && o.world.severalCounters()
			if server.leads && got.action != "" && got.action != "Continue" && !d.holder.fights() && !held && (got.action != "Verify" || got.reason != "NotByAgents") {
				o.fail("%s: server %d leads and still has to %s", workloadName(d.slot), server.id, got.action)
			}
			doubts := got.state == "Pending" && (want == "InSync" || want == "RollingOut") && o.mayDoubt(d, server, got.reason)
			if want != "" && got.state != want && got.reason != "NotRecorded" && !doubts {
				o.fail("%s: server %d shows %s (%s: %s), want %s: %s",
					workloadName(d.slot), server.id, got.state, got.reason, got.message, want, o.describePods(d))
			}
		}
		if !t.managed || blocked || d.paused || d.deleting || o.world.terminating {
			continue
		}
		o.checkEvictions(d)
		if o.rules(d).agent { // nothing restarts it
			if stale && !told {
				o.fail("%s is shown as InSync, and has containers with old content that agents do not apply", workloadName(d.slot))
			}
			continue
		}
		if d.holder.fights() && told {
			continue // the owner reverts each restart before pods are replaced; the state must show that
		}
		d.stale(&t.scopes, &contents, func(p *pod, c *container, s, k int) {
			if why := o.knowable(d, p, c, s, k); why != "" && !o.unsure(&t.scopes[s], s) {
				o.fail("%s was never restarted: %s, and %s", workloadName(d.slot), describe(p, c, s, k), why)
			}
			o.tally.Unknowable++
			c.known[s][k] |= contents[s].at(k)
		})
		o.settle(d, contents)
	}
}

// settle records which content pods run with according to a calm: from now on, a leader that has seen everything
// that others have must agree. A server that does not lead does not know what the leader has verified.
func (o *oracle) settle(d *workload, present contents) {
	if d.kind == "DaemonSet" && d.wanted() == 0 {
		return // nothing is recorded, because a node may be added at any moment
	}
	for s := range present {
		if d.truth.scopes[s].ignores && present[s] == (content{}) {
			continue // it is compared with what it was when it is there again
		}
		for k := range present[s] {
			if !slices.ContainsFunc(o.world.servers, func(server *server) bool {
				return server.alive && !server.leads && server.view.sources[s].witnessed[k] >= d.truth.templated
			}) {
				d.maybe[s][k] = present[s].at(k)
			}
		}
	}
}

// mayDoubt reports whether a server that does not lead may disagree with the leader, because it has seen a change
// that the leader may not have seen. If the doubt is about pods that are older than the template, any change of
// what counts allows that; otherwise only a change that the pods of the template may not have read.
func (o *oracle) mayDoubt(d *workload, s *server, reason string) bool {
	if s.leads {
		return false
	}
	for source, scope := range d.truth.scopes { // if it was read with another key, its content may differ
		if scope.counts() && s.view.sources[source].doubted >= max(d.truth.templated, d.truth.recreated, 1) {
			return true
		}
	}
	if reason == "Verifying" { // it leaves the verification to the leader, or verifies itself
		return false
	}
	t := s.view.templates[d.slot]
	if t.remade && t.uid == d.uid {
		return true // the age of the record is not known
	}
	if len(o.reasons(d, &s.view).sources) > 0 {
		return true
	}
	for source, scope := range d.truth.scopes {
		// An absent source does not show whether it matches, and counts as before.
		absent := o.rules(d).matches() && !s.view.sources[source].present &&
			slices.ContainsFunc(allUses[d.template.variant], func(u use) bool { return u.source == source })
		if !scope.counts() && !absent {
			continue
		}
		if seen := &s.view.sources[source]; seen.byList && s.view.listed[sourceStream(source)] >= d.truth.templated {
			return true // a list does not show whether it changed before the pods started
		}
		if t.again && t.uid == d.uid && s.view.sources[source].witnessed != [keyCount]uint64{} {
			return true
		}
	}
	return false
}

// checkEvictions checks that no pod is left that was to be evicted, unless something forbids its eviction.
func (o *oracle) checkEvictions(d *workload) {
	if underWay := d.underWay(); d.pdb || underWay == "" || underWay != d.restartsBy(o.rules(d)) || d.stuck() {
		return
	}
	whole := true
	for _, p := range d.pods {
		whole = whole && (p.terminating || p.ready())
	}
	if now, old := d.alive(d.template.identity()); len(now)+len(old) < d.replicas {
		whole = false // a StatefulSet does not replace pods on a lost node
	}
	for _, p := range d.pods {
		if whole && d.doomed(p) && !p.terminating {
			o.fail("%s: pod %d was never evicted, or restarted in place", workloadName(d.slot), p.uid)
		}
	}
}

// expect returns the state that servers should show, or nothing if several are correct.
func (o *oracle) expect(d *workload, blocked, stale bool) string {
	r := o.rules(d)
	switch {
	case d.deleting, o.world.terminating:
		return ""
	case r.invalid:
		return "Blocked"
	case r.mode == "off":
		return "Unmanaged"
	case blocked:
		return "Blocked"
	case d.paused: // a restart that another server would request may be omitted
		return ""
	case d.annotations[recreatingAnnotation] != "":
		return ""
	case d.kind == "StatefulSet" && d.replicas == 0 && len(d.pods) > 0: // a pod on a lost node may be stale
		return ""
	case stale, d.holder.fights():
		return ""
	case r.agent && slices.ContainsFunc(d.truth.scopes[:], scope.counts): // older pods may have old content, which nothing restarts
		return ""
	case d.unfinished():
		return "RollingOut"
	case r.agent:
		return o.expectOfAgents(d)
	default:
		return "InSync"
	}
}

// checkShown checks that no server that has seen everything shows a workload as InSync whose containers are known
// to run with other content.
func (o *oracle) checkShown() {
	contents := o.world.contents()
	for _, d := range o.world.workloads {
		if d == nil || !d.truth.managed || d.deleting || !o.world.readable(workloadStream(d.kind)) {
			continue
		}
		d.stale(&d.truth.scopes, &contents, func(p *pod, c *container, s, k int) {
			for _, server := range o.world.servers {
				if !server.alive || !server.view.synced || server.lags() || o.unsure(&d.truth.scopes[s], s) || o.misled(&server.view, d, p, c, s, k) || !o.knew(&server.view, d, c, s, k) {
					continue
				}
				if got := server.decide(d); got.state == "InSync" {
					o.fail("%s: server %d shows InSync, but %s", workloadName(d.slot), server.id, describe(p, c, s, k))
				}
			}
		})
		for _, server := range o.world.servers {
			if server.alive {
				got := server.decide(d)
				o.checkUnderWay(d, server, got)
				o.checkAgents(d, server, got)
			}
		}
	}
}

// checkAlike checks that a client that switches from one server to another does not keep objects that only the
// first one showed: if both have read the same and show different objects, the second one sends its object, or the
// first one does not let the client resume elsewhere.
func (o *oracle) checkAlike() {
	var servers []*server
	for _, s := range o.world.servers {
		if s.alive && s.view.synced && !s.view.rekeying && !s.lags() {
			servers = append(servers, s)
		}
	}
	if len(servers) < 2 {
		return
	}
	for _, d := range o.world.workloads {
		if d == nil {
			continue
		}
		verdicts := make([]verdict, len(servers))
		for i, s := range servers {
			verdicts[i] = s.decide(d)
		}
		for i, a := range verdicts {
			for j, b := range verdicts {
				if i != j && !a.provisional && !b.timed && !equality.Semantic.DeepEqual(a.shown, b.shown) {
					o.fail("%s: a client that goes from server %d to server %d keeps what only the first shows (-first +second):\n%s",
						workloadName(d.slot), servers[i].id, servers[j].id, cmp.Diff(a.shown, b.shown))
				}
			}
		}
	}
}

// lags reports whether something has not reached the server yet.
func (s *server) lags() bool {
	for _, id := range s.world.streams() {
		if st := &s.streams[id]; len(st.queue) > 0 || st.relist && !s.view.absent[id] || st.ended || s.view.absent[id] == s.world.readable(id) {
			return true
		}
	}
	return s.key != s.world.key
}
