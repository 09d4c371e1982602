// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"slices"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/equality"
)

// checkCalm checks a world that has come to rest.
func (o *oracle) checkCalm() {
	contents, marks := o.world.contents(), o.world.marks()
	for _, d := range o.world.workloads {
		if d == nil || o.violation != "" {
			continue
		}
		t := &d.truth
		blocked := missing(d.template.variant, marks, contents)
		stale := d.isStale(&t.scopes, &contents)
		want := o.expect(d, blocked, stale)
		told := false // that the pods may not run with what is there
		for _, server := range o.world.servers {
			if !server.alive {
				continue
			}
			got := server.decide(d)
			if server.leads {
				told = got.state != "InSync"
			}
			// What it knows of its own record, besides what is asked here, may hold a paused Deployment up.
			held := d.paused && o.world.severalCounters()
			if server.leads && got.action != "" && got.action != "Continue" && !d.holder.fights() && !held {
				o.fail("%s: server %d leads and is still to do %s", workloadName(d.slot), server.id, got.action)
			}
			doubts := got.state == "Pending" && (want == "InSync" || want == "RollingOut") && o.mayDoubt(d, server, got.reason)
			if want != "" && got.state != want && got.reason != "NotRecorded" && !doubts {
				o.fail("%s: server %d says %s (%s: %s), and it is %s: %s",
					workloadName(d.slot), server.id, got.state, got.reason, got.message, want, o.describePods(d))
			}
		}
		if !t.managed || blocked || d.paused || d.deleting || o.world.terminating {
			continue
		}
		o.checkEvictions(d)
		if d.holder.fights() && told {
			continue // an owner that reverts each restart before pods are replaced; the state has to say so
		}
		d.stale(&t.scopes, &contents, func(p *pod, c *container, s, k int) {
			if why := o.knowable(d, p, c, s, k); why != "" {
				o.fail("%s was never restarted: %s, and %s", workloadName(d.slot), describe(p, c, s, k), why)
			}
			o.tally.Unknowable++
			c.known[s][k] |= only(contents[s][k])
		})
		o.settle(d, contents)
	}
}

// settle notes that a calm has shown with what pods run: from now on, a leader that has seen all that
// others have must agree. One that does not lead does not know what the leader has looked up.
func (o *oracle) settle(d *workload, present contents) {
	if d.kind == "DaemonSet" && d.wanted() == 0 {
		return // nothing is recorded, as a node may come at any moment
	}
	for s := range present {
		for k, v := range present[s] {
			if !slices.ContainsFunc(o.world.servers, func(server *server) bool {
				return server.alive && !server.leads && server.view.sources[s].witnessed[k] >= d.truth.templated
			}) {
				d.maybe[s][k] = only(v)
			}
		}
	}
}

// mayDoubt reports whether a server that does not lead may disagree with the leader: it has seen a
// change that the leader may not have seen. If the doubt is about pods
// that are older than the template, any change of what counts allows it; else one that the pods of
// the template may not have read.
func (o *oracle) mayDoubt(d *workload, s *server, reason string) bool {
	if s.leads {
		return false
	}
	for source, scope := range d.truth.scopes { // read with another key, its content may be another
		if scope.counts() && s.view.sources[source].doubted >= max(d.truth.templated, d.truth.recreated, 1) {
			return true
		}
	}
	if reason == "Verifying" { // which it leaves to the leader, or looks into itself
		return false
	}
	t := s.view.templates[d.slot]
	if t.remade && t.uid == d.uid {
		return true // how old the record is cannot be told
	}
	if len(o.reasons(d, &s.view).sources) > 0 {
		return true
	}
	for source, scope := range d.truth.scopes {
		// One that is absent does not say whether it matches, and counts as it did before.
		absent := o.rules(d).mode == "matched" && !s.view.sources[source].present &&
			slices.ContainsFunc(allUses[d.template.variant], func(u use) bool { return u.source == source })
		if !scope.counts() && !absent {
			continue
		}
		if seen := &s.view.sources[source]; seen.byList && s.view.listed[sourceStream(source)] >= d.truth.templated {
			return true // a list does not tell whether it changed before the pods started
		}
		if t.again && t.uid == d.uid && s.view.sources[source].witnessed != [keyCount]uint64{} {
			return true
		}
	}
	return false
}

// checkEvictions checks that no pod is left that was to be evicted, unless something forbids
// it.
func (o *oracle) checkEvictions(d *workload) {
	if d.pdb || d.annotations[recreatingAnnotation] == "" || !o.rules(d).recreate {
		return
	}
	whole := true
	for _, p := range d.pods {
		whole = whole && (p.terminating || p.ready())
	}
	if now, old := d.alive(d.template.identity()); len(now)+len(old) < d.replicas {
		whole = false // a StatefulSet does not replace what is on a lost node
	}
	for _, p := range d.pods {
		if whole && d.doomed(p) && !p.terminating {
			o.fail("%s: pod %d was never evicted", workloadName(d.slot), p.uid)
		}
	}
}

// expect returns the state that servers should show, or nothing where they may choose.
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
	case d.paused: // it may have been spared a restart that another server would ask for
		return ""
	case d.annotations[recreatingAnnotation] != "":
		return ""
	case d.kind == "StatefulSet" && d.replicas == 0 && len(d.pods) > 0: // what is on a lost node may be stale
		return ""
	case stale, d.holder.fights():
		return ""
	case d.unfinished():
		return "RollingOut"
	default:
		return "InSync"
	}
}

// checkShown checks that no server that has seen everything calls a workload InSync whose
// containers are known to run with other content.
func (o *oracle) checkShown() {
	contents := o.world.contents()
	for _, d := range o.world.workloads {
		if d == nil || !d.truth.managed || d.deleting {
			continue
		}
		d.stale(&d.truth.scopes, &contents, func(p *pod, c *container, s, k int) {
			for _, server := range o.world.servers {
				if !server.alive || !server.view.synced || server.lags() || o.misled(&server.view, d, p, c, s, k) || !o.knew(&server.view, d, c, s, k) {
					continue
				}
				if got := server.decide(d); got.state == "InSync" {
					o.fail("%s: server %d says InSync, and %s", workloadName(d.slot), server.id, describe(p, c, s, k))
				}
			}
		})
	}
}

// checkAlike checks that a client that goes from one server to another does not keep what only the first one showed: if
// they have read the same and show something else, the second sends what it shows, or the first refuses to let the
// client go on elsewhere.
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

// lags reports whether something has yet to reach the server.
func (s *server) lags() bool {
	for i := range s.streams {
		if len(s.streams[i].queue) > 0 || s.streams[i].relist {
			return true
		}
	}
	return s.key != s.world.key
}
